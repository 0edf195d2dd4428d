import { useState } from "react";
import { api } from "../../lib/api.ts";
import { points } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { PoolField } from "../../ui/pool-field.tsx";

export function RedeemCode({ onClose }: { onClose(): void }) {
  const [code, setCode] = useState("");
  const [groupId, setGroupId] = useState("");
  const redeem = async () => {
    const given = await api("codes.redeem", { code, ...(groupId && { group_id: groupId }) });
    for (const changed of ["ledger self", "plan", "group"]) invalidate(changed);
    toast(`${points(given.points)} added: ${points(given.balance)} now`);
  };
  return (
    <FormDialog title="Redeem a code" submit="Redeem" onSubmit={redeem} onClose={onClose}>
      <TextField
        label="Code"
        value={code}
        onChange={setCode}
        required
        autoComplete="off"
        placeholder="points-…"
      />
      <PoolField label="Points go to" own="Your wallet" value={groupId} onChange={setGroupId} />
    </FormDialog>
  );
}
