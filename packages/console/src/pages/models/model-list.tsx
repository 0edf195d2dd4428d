import type { Model } from "@model-gateway/client";
import { client } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const columns: Column<Model>[] = [
  { id: "id", label: "Model", sort: ({ id }) => id, cell: ({ id }) => <span className="mono">{id}</span> },
  { id: "owner", label: "Served by", sort: ({ owned_by }) => owned_by, cell: ({ owned_by }) => owned_by },
  {
    id: "try",
    label: "",
    numeric: true,
    cell: ({ id }) => (
      <LinkButton href={`/playground?model=${encodeURIComponent(id)}`} small look="quiet" icon="playground">
        Try
      </LinkButton>
    ),
  },
];

export function ModelList() {
  const models = useQuery("models", () => client.rest.models());
  return (
    <Loaded query={models}>
      {(list) => (
        <>
          <p className="muted">
            Models of healthy backends, and the quick-start models that are always listed; those can be called
            only when a backend serves them.
          </p>
          <Table
            label="Models"
            columns={columns}
            rows={list}
            rowKey={({ id, owned_by }) => `${owned_by} ${id}`}
          />
        </>
      )}
    </Loaded>
  );
}
