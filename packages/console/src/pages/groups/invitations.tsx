import type { Result } from "@model-gateway/client";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { FormError, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Invitation = Result<"group.invite.list">[number];

/** Invitations that can still be used; nothing where there are none. */
export function Invitations({ groupId }: { groupId: string }) {
  const key = `group ${groupId} invitations`;
  const pending = useQuery(key, () => api("group.invite.list", { group_id: groupId }));
  const revoke = useAction(async (id: string) => {
    await api("group.invite.revoke", { group_id: groupId, invitation_id: id });
    invalidate(key);
    toast("The invitation is revoked");
  });
  const columns: Column<Invitation>[] = [
    {
      id: "for",
      label: "For",
      cell: ({ email }) => email ?? <span className="muted">anyone with the link</span>,
    },
    { id: "role", label: "Role", cell: ({ role }) => <span className="tag">{role}</span> },
    {
      id: "uses",
      label: "Uses left",
      numeric: true,
      wide: true,
      cell: ({ uses, max_uses }) => max_uses - uses,
    },
    { id: "by", label: "Invited by", wide: true, cell: ({ created_by }) => created_by },
    { id: "expires", label: "Ends", cell: ({ expires_at }) => <When time={expires_at} /> },
    {
      id: "revoke",
      label: "",
      numeric: true,
      cell: ({ id, email }) => (
        <Button
          small
          look="quiet"
          aria-label={`Revoke the invitation for ${email ?? "anyone"}`}
          onClick={() => void revoke.run(id)}
        >
          Revoke
        </Button>
      ),
    },
  ];
  if (!pending.data?.length) return null;
  return (
    <>
      <h3>Pending invitations</h3>
      <FormError error={revoke.error} />
      <Table label="Pending invitations" columns={columns} rows={pending.data} rowKey={({ id }) => id} />
    </>
  );
}
