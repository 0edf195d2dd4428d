import { money } from "../../lib/format.ts";
import { type KnownModel, useKnownModels } from "../../lib/models.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const columns: Column<KnownModel>[] = [
  { id: "id", label: "Model", sort: ({ id }) => id, cell: ({ id }) => <span className="mono">{id}</span> },
  {
    id: "owner",
    label: "Served by",
    sort: ({ owned_by, price }) => (price ? owned_by : ""),
    cell: ({ owned_by, price }) =>
      price ? owned_by : <span className="muted">no backend, offered by {owned_by}</span>,
  },
  {
    id: "input",
    label: "In, $ per million",
    numeric: true,
    sort: ({ price }) => price?.input ?? -1,
    cell: ({ price }) => <Price value={price?.input} />,
  },
  {
    id: "output",
    label: "Out, $ per million",
    numeric: true,
    sort: ({ price }) => price?.output ?? -1,
    cell: ({ price }) => <Price value={price?.output} />,
  },
  {
    id: "try",
    label: "",
    numeric: true,
    cell: ({ id, price }) =>
      price && (
        <LinkButton href={`/playground?model=${encodeURIComponent(id)}`} small look="quiet" icon="playground">
          Try
        </LinkButton>
      ),
  },
];

/** A price, or the plain word that there is none; nothing for a model that nobody serves. */
function Price({ value }: { value: number | null | undefined }) {
  if (value === undefined) return null;
  return value === null ? <span className="muted">unpriced</span> : money(value);
}

export function ModelList() {
  const models = useKnownModels();
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
