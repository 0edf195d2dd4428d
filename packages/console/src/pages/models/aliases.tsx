import type { Result } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Button } from "../../ui/controls.tsx";
import { FormError, Loaded, Note } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Alias = Result<"aliases.list">[number];

export function Aliases() {
  const aliases = useQuery("aliases", () => api("aliases.list"));
  const [alias, setAlias] = useState("");
  const [target, setTarget] = useState("");
  const add = useAction(async () => {
    await api("aliases.set", { alias: alias.trim(), target: target.trim() });
    invalidate("aliases");
  });
  const remove = useAction(async (name: string) => {
    await api("aliases.remove", { alias: name });
    invalidate("aliases");
  });
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!(await add.run())) return;
    setAlias("");
    setTarget("");
  };
  const columns: Column<Alias>[] = [
    {
      id: "alias",
      label: "Name that programs send",
      sort: (row) => row.alias,
      cell: (row) => <span className="mono">{row.alias}</span>,
    },
    {
      id: "target",
      label: "Model that answers",
      sort: (row) => row.target,
      cell: (row) => <span className="mono">{row.target}</span>,
    },
    {
      id: "remove",
      label: "",
      numeric: true,
      cell: (row) => (
        <Button
          look="quiet"
          small
          icon="close"
          aria-label={`Remove ${row.alias}`}
          onClick={() => void remove.run(row.alias)}
        />
      ),
    },
  ];
  return (
    <div className="stack">
      <Note>
        <span className="muted">
          Aliases apply to chat, embeddings and video at once. They live in memory and are gone after a
          restart.
        </span>
      </Note>
      <form className="row wrap" onSubmit={submit}>
        <input
          className="input grow"
          aria-label="Alias"
          placeholder="fast"
          required
          value={alias}
          onChange={(event) => setAlias(event.target.value)}
        />
        <span className="muted">stands for</span>
        <input
          className="input grow"
          aria-label="Model"
          placeholder="model id"
          required
          value={target}
          onChange={(event) => setTarget(event.target.value)}
        />
        <Button type="submit" icon="plus" busy={add.busy}>
          Add alias
        </Button>
      </form>
      <FormError error={add.error ?? remove.error} />
      <Loaded query={aliases}>
        {(list) =>
          list.length === 0 ? (
            <p className="muted">No alias is set.</p>
          ) : (
            <Table label="Aliases" columns={columns} rows={list} rowKey={(row) => row.alias} />
          )
        }
      </Loaded>
    </div>
  );
}
