import { useState } from "react";
import { moneyFormat } from "../../lib/format.ts";
import { type KnownModel, useKnownModels } from "../../lib/models.ts";
import { Button, LinkButton } from "../../ui/controls.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { SetPrice } from "./set-price.tsx";

const columnsFor = (
  format: (usd: number | null) => string,
  setPrice: (model: KnownModel) => void,
): Column<KnownModel>[] => [
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
    cell: ({ price }) => <Price value={price?.input} format={format} />,
  },
  {
    id: "output",
    label: "Out, $ per million",
    numeric: true,
    sort: ({ price }) => price?.output ?? -1,
    cell: ({ price }) => <Price value={price?.output} format={format} />,
  },
  {
    id: "price",
    label: "",
    numeric: true,
    cell: (model) =>
      model.price && (
        <Button small look="quiet" aria-label={`Set price of ${model.id}`} onClick={() => setPrice(model)}>
          Set price
        </Button>
      ),
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
function Price({ value, format }: { value: number | null | undefined; format(usd: number | null): string }) {
  if (value === undefined) return null;
  return value === null ? <Status tone="warn">unpriced</Status> : format(value);
}

export function ModelList() {
  const models = useKnownModels();
  const [pricing, setPricing] = useState<KnownModel | null>(null);
  return (
    <Loaded query={models} outline={<TableSkeleton columns={columnsFor(String, () => {})} />}>
      {(list) => (
        <>
          <p className="muted">
            Models of healthy backends, and the quick-start models that are always listed; those can be called
            only when a backend serves them.
          </p>
          <Table
            label="Models"
            columns={columnsFor(
              moneyFormat(list.flatMap(({ price }) => [price?.input, price?.output])),
              setPricing,
            )}
            rows={list}
            rowKey={({ id, owned_by }) => `${owned_by} ${id}`}
          />
          {pricing && (
            <SetPrice
              model={pricing.id}
              input={pricing.price?.input}
              output={pricing.price?.output}
              onClose={() => setPricing(null)}
            />
          )}
        </>
      )}
    </Loaded>
  );
}
