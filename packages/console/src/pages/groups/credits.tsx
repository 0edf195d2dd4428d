import { useMemo, useState } from "react";
import { api } from "../../lib/api.ts";
import { points } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { StatementView } from "../../ui/statement.tsx";
import { Loaded } from "../../ui/states.tsx";
import type { GroupView } from "./detail.tsx";

export function GroupCredits({ group, mayIssue }: { group: GroupView; mayIssue: boolean }) {
  const statement = useQuery(`group ${group.id} credits`, () =>
    api("group.credits.balance", { group_id: group.id }),
  );
  const plan = useQuery("plan", () => api("billing.plan"));
  const [dialog, setDialog] = useState<"topup" | "allocate" | null>(null);
  const close = () => setDialog(null);
  const names = useMemo(
    () => new Map(group.members.map(({ user_id, email }) => [user_id, email])),
    [group.members],
  );
  return (
    <Loaded query={statement}>
      {(data) => (
        <>
          <StatementView
            name="Pool"
            statement={data}
            names={names}
            pointsPerUsd={plan.data?.points_per_usd}
            empty="Points that a platform administrator issues to the pool appear here, then every movement of them."
            actions={
              <>
                <Button
                  icon="groups"
                  disabled={data.balance === 0}
                  title={data.balance === 0 ? "The pool is empty" : undefined}
                  onClick={() => setDialog("allocate")}
                >
                  Allocate to a member
                </Button>
                {mayIssue && (
                  <Button look="primary" icon="plus" onClick={() => setDialog("topup")}>
                    Issue points
                  </Button>
                )}
              </>
            }
          />
          {dialog === "topup" && <TopUp groupId={group.id} onClose={close} />}
          {dialog === "allocate" && <Allocate group={group} balance={data.balance} onClose={close} />}
        </>
      )}
    </Loaded>
  );
}

function TopUp({ groupId, onClose }: { groupId: string; onClose(): void }) {
  const [amount, setAmount] = useState("1000");
  const [note, setNote] = useState("");
  const issue = async () => {
    const { balance } = await api("group.credits.topup", {
      group_id: groupId,
      points: Number(amount),
      ...(note && { note }),
    });
    invalidate(`group ${groupId} credits`);
    toast(`The pool has ${points(balance)} now`);
  };
  return (
    <FormDialog title="Issue points to the pool" submit="Issue points" onSubmit={issue} onClose={onClose}>
      <TextField label="Points" type="number" min={1} step={1} value={amount} onChange={setAmount} required />
      <TextField
        label="Note"
        value={note}
        onChange={setNote}
        maxLength={200}
        placeholder="invoice, budget line"
      />
    </FormDialog>
  );
}

function Allocate({ group, balance, onClose }: { group: GroupView; balance: number; onClose(): void }) {
  const [email, setEmail] = useState(group.members[0]?.email ?? "");
  const [amount, setAmount] = useState("100");
  const [note, setNote] = useState("");
  const allocate = async () => {
    await api("group.credits.allocate", {
      group_id: group.id,
      user_id: email,
      points: Number(amount),
      ...(note && { note }),
    });
    invalidate(`group ${group.id} credits`);
    invalidate("plan");
    toast(`Moved ${points(Number(amount))} to the wallet of ${email}`);
  };
  return (
    <FormDialog
      title="Move points to a member's wallet"
      submit="Allocate"
      onSubmit={allocate}
      onClose={onClose}
    >
      <SelectField
        label="Member"
        value={email}
        onChange={setEmail}
        choices={group.members.map((member) => ({
          value: member.email,
          label: `${member.name} (${member.email})`,
        }))}
      />
      <TextField
        label="Points"
        type="number"
        min={1}
        max={balance}
        step={1}
        value={amount}
        onChange={setAmount}
        required
        hint={`The pool has ${points(balance)}; all of it is moved, or nothing`}
      />
      <TextField label="Note" value={note} onChange={setNote} maxLength={200} />
    </FormDialog>
  );
}
