import { useState } from "react";
import { api } from "../../lib/api.ts";
import { moneyFormat } from "../../lib/format.ts";
import { type KnownModel, useKnownModels } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import { Button, LinkButton } from "../../ui/controls.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { ImportPrices } from "./import-prices.tsx";
import { isVideo, type ModelPrice, SetPrice, useUnitPriceInWords } from "./set-price.tsx";

/** A model with its price; without one when no backend serves it. */
type Row = KnownModel & { full?: ModelPrice };

interface Words {
  perMillion(usd: number | null): string;
  byUnit(price: ModelPrice): string | null;
}

const columnsFor = ({ perMillion, byUnit }: Words, setPrice: (price: ModelPrice) => void): Column<Row>[] => [
  {
    id: "id",
    label: "Model",
    sort: ({ id }) => id,
    cell: ({ id }) => <span className="mono nowrap">{id}</span>,
  },
  {
    id: "owner",
    label: "Served by",
    wide: true,
    sort: ({ owned_by, price }) => (price ? owned_by : ""),
    cell: ({ owned_by, price, available }) =>
      price ? (
        owned_by
      ) : (
        <span className="muted nowrap">{available ? `route, now ${owned_by}` : "nobody yet"}</span>
      ),
  },
  {
    id: "input",
    label: "In, $ per million",
    numeric: true,
    sort: ({ full }) => full?.input_usd ?? -1,
    cell: ({ full }) => full && !isVideo(full) && full.input_usd !== null && perMillion(full.input_usd),
  },
  {
    id: "output",
    label: "Out, $ per million",
    numeric: true,
    sort: ({ full }) => full?.output_usd ?? -1,
    cell: ({ full }) => full && !isVideo(full) && full.output_usd !== null && perMillion(full.output_usd),
  },
  {
    id: "unit",
    label: "By unit",
    cell: ({ full }) =>
      full && (
        <span className="row wrap">
          {full.unpriced && <Status tone="warn">unpriced</Status>}
          {full.not_billed && <span className="muted">not billed</span>}
          {byUnit(full)}
        </span>
      ),
  },
  {
    id: "price",
    label: "",
    numeric: true,
    cell: ({ id, full }) =>
      full && (
        <Button small look="quiet" aria-label={`Set price of ${id}`} onClick={() => setPrice(full)}>
          Set price
        </Button>
      ),
  },
  {
    id: "try",
    label: "",
    numeric: true,
    wide: true,
    cell: ({ id, full, available }) =>
      (full ? full.capabilities.includes("chat") : available) && (
        <LinkButton href={`/playground?model=${encodeURIComponent(id)}`} small look="quiet" icon="playground">
          Try
        </LinkButton>
      ),
  },
];

export function ModelList() {
  const models = useKnownModels();
  const prices = useQuery("prices", () => api("billing.prices.list")).data;
  const byUnit = useUnitPriceInWords();
  const [pricing, setPricing] = useState<ModelPrice | null>(null);
  const [isImporting, setImporting] = useState(false);
  const byModel = new Map(prices?.map((price) => [price.model, price]));
  const perMillion = moneyFormat(
    prices?.flatMap(({ input_usd, output_usd }) => [input_usd, output_usd]) ?? [],
  );
  const columns = columnsFor({ perMillion, byUnit }, setPricing);
  return (
    <Loaded query={models} outline={<TableSkeleton columns={columns} />}>
      {(list) => (
        <>
          <div className="row between">
            <p className="muted">
              Models of healthy backends, and the quick-start models that are always listed; those can be
              called only when a backend serves them.
            </p>
            {prices && <Button onClick={() => setImporting(true)}>Import prices</Button>}
          </div>
          <Table
            label="Models"
            columns={columns}
            rows={list.map((model): Row => ({ ...model, full: byModel.get(model.id) }))}
            rowKey={({ id, owned_by }) => `${owned_by} ${id}`}
          />
          {isImporting && prices && <ImportPrices current={prices} onClose={() => setImporting(false)} />}
          {pricing && <SetPrice price={pricing} onClose={() => setPricing(null)} />}
        </>
      )}
    </Loaded>
  );
}
