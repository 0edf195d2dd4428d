import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Provider = Awaited<ReturnType<typeof listProviders>>[number];
const listProviders = () => api("providers.list");

/** Cards of the form that registers a backend. */
export function Providers() {
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
    {
      id: "remove",
      label: "",
      numeric: true,
      cell: (row) =>
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
  ];
  return (
    <Section title="Providers">
      <div className="stack">
        <Loaded query={providers}>
          {(list) => <Table label="Providers" columns={columns} rows={list} rowKey={({ id }) => id} />}
        </Loaded>
        <AddProvider />
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
