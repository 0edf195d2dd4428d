import { useMemo, useState } from "react";
import { api } from "../../lib/api.ts";
import { useGroups } from "../../lib/groups.ts";
import { useQuery } from "../../lib/query.ts";
import { Button } from "../../ui/controls.tsx";
import { PageHead } from "../../ui/page.tsx";
import { StatementView } from "../../ui/statement.tsx";
import { Loaded } from "../../ui/states.tsx";
import { RedeemCode } from "./redeem.tsx";

const EVERY_MS = 10_000;

export function Page() {
  const wallet = useQuery("ledger self", () => api("ledger.self"), { everyMs: EVERY_MS });
  const plan = useQuery("plan", () => api("billing.plan"));
  const groups = useGroups().data;
  const names = useMemo(() => new Map(groups?.map(({ id, name }) => [id, `The pool of ${name}`])), [groups]);
  const [redeeming, setRedeeming] = useState(false);
  return (
    <>
      <PageHead title="Wallet">
        Your points. Each request draws on them first. When they run out, your monthly quota is used.
      </PageHead>
      <Loaded query={wallet}>
        {(statement) => (
          <StatementView
            name="Balance"
            statement={statement}
            names={names}
            pointsPerUsd={plan.data?.points_per_usd}
            actions={<Button onClick={() => setRedeeming(true)}>Redeem a code</Button>}
            empty="Points that a group allocates to you, and every request they paid for, appear here with the balance after each."
          />
        )}
      </Loaded>
      {redeeming && <RedeemCode onClose={() => setRedeeming(false)} />}
    </>
  );
}
