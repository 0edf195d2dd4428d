import { useMemo } from "react";
import { count, plural, points, shortId, shortRequestId } from "../lib/format.ts";
import type { LedgerEntry } from "../lib/records.ts";
import { Copyable } from "./controls.tsx";
import { When } from "./states.tsx";
import { type Column, Table } from "./table.tsx";

const KINDS: Record<LedgerEntry["kind"], string> = {
  topup: "Issued",
  allocation: "Allocation",
  settlement: "Request",
  return: "Returned",
  debt: "Debt",
  repayment: "Debt paid",
  takeover: "Debt taken over",
};
const SYSTEM_NAMES: Record<string, string> = { spent: "spent", quota: "the month's quota" };
const OWNER_NAMES = { group: "a group's pool", user: "a member's wallet", debt: "a debt" } as const;
const counterparty = ({ type, id }: LedgerEntry["counterparty"]) =>
  type === "system" ? (SYSTEM_NAMES[id] ?? "the platform") : OWNER_NAMES[type];

/** Names of the people and groups that the reader knows, by id. */
export type Names = ReadonlyMap<string, string>;

const columnsWith = (names: Names): Column<LedgerEntry>[] => [
  { id: "seq", label: "No.", numeric: true, wide: true, cell: ({ seq }) => count(seq) },
  { id: "when", label: "When", cell: ({ created_at }) => <When time={created_at} /> },
  { id: "kind", label: "What", cell: ({ kind }) => KINDS[kind] ?? kind },
  {
    id: "other",
    label: "From / to",
    wide: true,
    cell: ({ counterparty: other }) =>
      names.get(other.id) ?? (
        <span className="row">
          {counterparty(other)}
          {other.type !== "system" && <Copyable text={other.id} shown={shortId(other.id)} />}
        </span>
      ),
  },
  {
    id: "note",
    label: "Reference",
    wide: true,
    cell: ({ note, request_id }) =>
      note ?? (request_id ? <Copyable text={request_id} shown={shortRequestId(request_id)} /> : ""),
  },
  {
    id: "points",
    label: "Points",
    numeric: true,
    cell: ({ points: moved }) => (
      <span className={moved > 0 ? "good" : undefined}>{moved > 0 ? `+${count(moved)}` : count(moved)}</span>
    ),
  },
  {
    id: "balance",
    label: "Balance",
    numeric: true,
    cell: ({ balance_after }) => <strong>{points(balance_after)}</strong>,
  },
];

export function LedgerTable({ entries, names }: { entries: readonly LedgerEntry[]; names: Names }) {
  const columns = useMemo(() => columnsWith(names), [names]);
  return (
    <Table
      label="Ledger"
      columns={columns}
      rows={entries}
      rowKey={({ seq, created_at, request_id }) => `${seq} ${created_at} ${request_id}`}
    />
  );
}

export interface Check {
  ok: boolean;
  text: string;
}

/** Recomputes what is on screen: every balance follows from the one before it, and no entry is missing. */
export function verifyEntries(balance: number, entries: readonly LedgerEntry[]): Check {
  const oldestFirst = entries.toReversed();
  for (const [i, entry] of oldestFirst.entries()) {
    const before = oldestFirst[i - 1];
    if (before && entry.seq !== before.seq + 1)
      return { ok: false, text: `Entry ${before.seq + 1} is missing.` };
    if (before && entry.balance_after !== before.balance_after + entry.points)
      return { ok: false, text: `Entry ${entry.seq} does not follow from the one before it.` };
  }
  const newest = entries[0];
  if (newest && newest.balance_after !== balance)
    return { ok: false, text: "The balance is not that of the newest entry." };
  return {
    ok: true,
    text: `${plural(entries.length, "entry", "entries")} recomputed: each balance follows from the one before it.`,
  };
}
