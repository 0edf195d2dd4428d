import { oneTimeLink, type Result } from "@model-gateway/client";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { SERVICE_URL } from "../../lib/base.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Code } from "../../ui/code.tsx";
import { Button } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import { FormError, Loaded, Note, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type PendingLink = Result<"users.links.list">[number];

export interface ShownLink {
  token: string;
  expires_at: string;
  text: string;
}

/** The only time that the link can be seen. */
export function LinkDialog({ token, expires_at, text, onClose }: ShownLink & { onClose(): void }) {
  return (
    <Dialog title="One-time link" closing="when copied" onClose={onClose}>
      <div className="stack">
        <p>{text}</p>
        <Code label="One-time link" text={oneTimeLink(SERVICE_URL, "welcome", token)} />
        <Note tone="warn">
          Copy it now: it is not shown again. It works once and expires <When time={expires_at} />.
        </Note>
      </div>
    </Dialog>
  );
}

export function Links() {
  const links = useQuery("links", () => api("users.links.list"));
  const revoke = useAction(async (id: string) => {
    await api("users.links.revoke", { link_id: id });
    invalidate("links");
    toast("The link is revoked");
  });
  const columns: Column<PendingLink>[] = [
    {
      id: "kind",
      label: "Use",
      cell: ({ kind }) => (kind === "invitation" ? "invitation" : "choose a password"),
    },
    {
      id: "email",
      label: "For",
      cell: ({ email }) => email ?? <span className="muted">anyone with the link</span>,
    },
    {
      id: "terms",
      label: "Becomes",
      wide: true,
      cell: ({ kind, is_admin, tier, group_name }) =>
        kind === "invitation" &&
        [is_admin ? "administrator" : "user", tier, group_name && `member of ${group_name}`]
          .filter(Boolean)
          .join(", "),
    },
    { id: "note", label: "Note", wide: true, cell: ({ note }) => note },
    { id: "by", label: "Made by", wide: true, cell: ({ created_by }) => created_by },
    { id: "made", label: "Made", wide: true, cell: ({ created_at }) => <When time={created_at} /> },
    { id: "ends", label: "Expires", wide: true, cell: ({ expires_at }) => <When time={expires_at} /> },
    {
      id: "revoke",
      label: "",
      numeric: true,
      cell: ({ id, email }) => (
        <Button
          small
          look="quiet"
          aria-label={`Revoke the link for ${email ?? "anyone"}`}
          onClick={() => void revoke.run(id)}
        >
          Revoke
        </Button>
      ),
    },
  ];
  return (
    <>
      <FormError error={revoke.error} />
      <Loaded query={links}>
        {(list) =>
          list.length === 0 ? (
            <p className="muted">No pending invitations.</p>
          ) : (
            <Table label="Pending invitations" columns={columns} rows={list} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
    </>
  );
}
