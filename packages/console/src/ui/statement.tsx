import { type ReactNode, useState } from "react";
import { plural, points } from "../lib/format.ts";
import type { Statement } from "../lib/records.ts";
import { Button } from "./controls.tsx";
import { type Check, LedgerTable, type Names, verifyEntries } from "./ledger.tsx";
import { Figure, Section } from "./page.tsx";
import { Empty, Note } from "./states.tsx";

/** A balance with the entries that made it. */
export function StatementView({
  name,
  statement,
  names,
  pointsPerUsd,
  actions,
  empty,
}: {
  name: string;
  statement: Statement;
  names: Names;
  pointsPerUsd: number | undefined;
  actions?: ReactNode;
  empty: string;
}) {
  const [check, setCheck] = useState<Check | null>(null);
  const { balance, entries, debt, debts, debt_entries } = statement;
  return (
    <div className="stack loose">
      <div className="figures">
        <Figure
          name={name}
          value={points(balance)}
          note={pointsPerUsd ? `worth $${(balance / pointsPerUsd).toFixed(2)}` : undefined}
        />
        {debt > 0 && (
          <Figure
            name="Owed"
            value={points(debt)}
            note={debts.length > 1 ? `by ${plural(debts.length, "member")}` : "new points pay this first"}
          />
        )}
      </div>
      {debt > 0 && (
        <Note tone="bad">
          {points(debt)} are owed for answers that neither points nor the monthly quota covered. Those who owe
          them are refused until new points or next month's quota have paid it.
        </Note>
      )}
      <Section
        title="Ledger"
        actions={
          <>
            {actions}
            <Button
              icon="shield"
              disabled={entries.length === 0}
              onClick={() => setCheck(verifyEntries(balance, entries))}
            >
              Verify
            </Button>
          </>
        }
      >
        <div className="stack">
          {check && <Note tone={check.ok ? "good" : "bad"}>{check.text}</Note>}
          {entries.length === 0 ? (
            <Empty icon="shield" title="No entries yet">
              {empty}
            </Empty>
          ) : (
            <LedgerTable entries={entries} names={names} />
          )}
        </div>
      </Section>
      {debt_entries.length > 0 && (
        <Section title="Debts">
          <LedgerTable entries={debt_entries} names={names} />
        </Section>
      )}
    </div>
  );
}
