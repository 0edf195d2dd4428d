import type { Result } from "@model-gateway/client";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError, Loaded, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Identity = Result<"auth.identities.list">[number];

/** The person's accounts at the sign-in provider. */
export function Identities() {
  const identities = useQuery("identities", () => api("auth.identities.list"));
  const link = useAction(async () => {
    location.assign(await client.beginSignIn({ returnTo: "/settings", link: true }));
  });
  const unlink = useAction(async (id: string) => {
    await api("auth.identities.remove", { identity_id: id });
    invalidate("identities");
    toast("Unlinked");
  });
  const columns: Column<Identity>[] = [
    { id: "email", label: "Account", cell: ({ email, issuer }) => <strong>{email ?? issuer}</strong> },
    {
      id: "issuer",
      label: "Provider",
      wide: true,
      cell: ({ issuer }) => <span className="mono">{issuer}</span>,
    },
    { id: "used", label: "Last used", cell: ({ last_used_at }) => <When time={last_used_at} /> },
    {
      id: "unlink",
      label: "",
      numeric: true,
      cell: ({ id, email }) => (
        <Button small look="quiet" aria-label={`Unlink ${email ?? ""}`} onClick={() => void unlink.run(id)}>
          Unlink
        </Button>
      ),
    },
  ];
  return (
    <Section
      title="Single sign-on"
      actions={
        <Button small busy={link.busy} onClick={() => void link.run()}>
          Link an account
        </Button>
      }
    >
      <FormError error={link.error ?? unlink.error} />
      <Loaded query={identities}>
        {(list) =>
          list.length === 0 ? (
            <p className="muted">Not linked: you sign in with your password.</p>
          ) : (
            <Table label="Single sign-on" columns={columns} rows={list} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
    </Section>
  );
}
