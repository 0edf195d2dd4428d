import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { BASE } from "../../lib/base.ts";
import { client, session } from "../../lib/client.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { loadSetup } from "../../lib/setup.ts";
import { useStore } from "../../lib/store.ts";
import { setTheme, theme } from "../../lib/theme.ts";
import { toast } from "../../lib/toast.ts";
import { Button, Copyable, Segments, TextField } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { FormError, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Identities } from "./identities.tsx";
import { Password } from "./password.tsx";
import { ServiceSettings } from "./service.tsx";
import { Sessions } from "./sessions.tsx";

type Provider = Awaited<ReturnType<typeof listProviders>>[number];
const listProviders = () => api("providers.list");

export function Page() {
  const user = useStore(session)?.user;
  const shown = useStore(theme);
  const health = useQuery("health", () => client.rest.health());
  const setup = useQuery("setup", loadSetup);
  if (!user) return null;
  return (
    <>
      <PageHead title="Settings" />
      <Section title="Account">
        <dl className="facts">
          <dt>Name</dt>
          <dd>{user.name}</dd>
          <dt>Email</dt>
          <dd>{user.email}</dd>
          <dt>Rights</dt>
          <dd>{user.is_admin ? "administrator" : "user"}</dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={user.id} />
          </dd>
        </dl>
      </Section>
      <Section title="Appearance">
        <Segments
          label="Theme"
          value={shown}
          onChange={setTheme}
          choices={[
            { value: "system", label: "System" },
            { value: "light", label: "Light" },
            { value: "dark", label: "Dark" },
          ]}
        />
      </Section>
      {setup.data?.password_sign_in && <Password />}
      {setup.data?.provider && <Identities />}
      <Sessions />
      {user.is_admin && <ServiceSettings />}
      <Providers isAdmin={user.is_admin} />
      <Section title="This service">
        <Loaded query={health}>
          {(data) => (
            <dl className="facts">
              <dt>Version</dt>
              <dd>{data.version}</dd>
              <dt>Build</dt>
              <dd>
                <code>{data.build_hash}</code>
              </dd>
              <dt>Documents</dt>
              <dd>
                <a href={`${BASE}/api/openrpc.json`}>OpenRPC</a>,{" "}
                <a href={`${BASE}/api/openapi.json`}>OpenAPI</a>, <a href={`${BASE}/llms.txt`}>llms.txt</a>,{" "}
                <a href={`${BASE}/metrics`}>metrics</a>
              </dd>
            </dl>
          )}
        </Loaded>
      </Section>
    </>
  );
}

function Providers({ isAdmin }: { isAdmin: boolean }) {
  const providers = useQuery("providers", listProviders);
  const [removing, setRemoving] = useState<Provider | null>(null);
  const columns: Column<Provider>[] = [
    {
      id: "name",
      label: "Name",
      sort: ({ name }) => name.toLowerCase(),
      cell: ({ name, description }) => (
        <span className="stack none">
          <strong>{name}</strong>
          <span className="muted small">{description}</span>
        </span>
      ),
    },
    { id: "domain", label: "Website", wide: true, cell: ({ website_domain }) => website_domain },
    {
      id: "kind",
      label: "Entry",
      wide: true,
      cell: ({ is_official }) => <span className="tag">{is_official ? "built in" : "own"}</span>,
    },
    ...(isAdmin
      ? [
          {
            id: "remove",
            label: "",
            numeric: true,
            cell: (row: Provider) =>
              !row.is_official && (
                <Button
                  look="quiet"
                  small
                  icon="close"
                  aria-label={`Remove ${row.name}`}
                  onClick={() => setRemoving(row)}
                />
              ),
          },
        ]
      : []),
  ];
  return (
    <Section title="Providers">
      <div className="stack">
        <Loaded query={providers}>
          {(list) => <Table label="Providers" columns={columns} rows={list} rowKey={({ id }) => id} />}
        </Loaded>
        {isAdmin && <AddProvider />}
      </div>
      {removing && (
        <Confirm
          title={`Remove ${removing.name}?`}
          consequence="Only the entry in this list goes away; backends are not touched."
          confirm="Remove"
          onClose={() => setRemoving(null)}
          onConfirm={async () => {
            await api("providers.remove", { provider_id: removing.id });
            invalidate("providers");
          }}
        />
      )}
    </Section>
  );
}

function AddProvider() {
  const [id, setId] = useState("");
  const [name, setName] = useState("");
  const [domain, setDomain] = useState("");
  const add = useAction(async () => {
    await api("providers.add", { id, name, ...(domain && { website_domain: domain }) });
    invalidate("providers");
    toast(`${name} is listed now`);
    setId("");
    setName("");
    setDomain("");
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void add.run();
  };
  return (
    <details>
      <summary>Add an entry</summary>
      <form className="form narrow" onSubmit={submit}>
        <div className="columns">
          <TextField label="Id" value={id} onChange={setId} required maxLength={64} />
          <TextField label="Name" value={name} onChange={setName} required maxLength={80} />
          <TextField label="Website" value={domain} onChange={setDomain} placeholder="example.org" />
        </div>
        <FormError error={add.error} />
        <div>
          <Button type="submit" busy={add.busy}>
            Add
          </Button>
        </div>
      </form>
    </details>
  );
}
