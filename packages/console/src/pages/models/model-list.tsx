import { useState } from "react";
import { api } from "../../lib/api.ts";
import { backendsChanged } from "../../lib/backends.ts";
import { session } from "../../lib/client.ts";
import { compact, money, moneyFormat, seconds } from "../../lib/format.ts";
import { type KnownModel, useKnownModels } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import { useStore } from "../../lib/store.ts";
import { toastError } from "../../lib/toast.ts";
import { Button, LinkButton } from "../../ui/controls.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { ImportPrices } from "./import-prices.tsx";
import { isVideo, type ModelPrice, SetPrice, useUnitPriceInWords } from "./set-price.tsx";

/** A model with all of its price, which administrators see. */
type Row = KnownModel & { full?: ModelPrice };

const NEW_PATTERN: ModelPrice = {
  ...{ model: "", capabilities: [], input_usd: null, output_usd: null, parts: {} },
  ...{ unpriced: false, not_billed: false, source: null },
};

interface Words {
  perMillion(usd: number | null): string;
  byUnit(price: ModelPrice): string | null;
}

/** Members know of no price but the one by the token and the video. */
const isByToken = ({ full, capabilities }: Row) =>
  Boolean(full) || capabilities.some((ability) => ability === "chat" || ability === "embeddings");

const billing = (row: Row) => {
  const { full, input_usd, is_own } = row;
  if (!isByToken(row)) return null;
  if (full ? full.unpriced : input_usd === null && !is_own) return <Status tone="warn">unpriced</Status>;
  if (full ? full.not_billed : input_usd === null) return <span className="muted">not billed</span>;
  return null;
};

const columnsFor = ({ perMillion, byUnit }: Words): Column<Row>[] => [
  {
    id: "id",
    label: "Model",
    sort: ({ id }) => id,
    cell: ({ id, targets }) => (
      <>
        <span className="mono">{id}</span>
        {targets && <div className="muted small wide">route: {targets.join(", then ")}</div>}
      </>
    ),
  },
  {
    id: "state",
    label: "State",
    sort: ({ available }) => Number(available),
    cell: ({ available }) =>
      available ? <Status tone="good">Serving</Status> : <Status tone="bad">Not answering</Status>,
  },
  {
    id: "where",
    label: "Runs on",
    wide: true,
    sort: ({ served_by }) => served_by,
    cell: ({ served_by, is_own }) => (
      <>
        {served_by} {is_own && <span className="muted small">own hardware</span>}
      </>
    ),
  },
  {
    id: "abilities",
    label: "Can do",
    wide: true,
    cell: ({ capabilities }) => capabilities.join(", "),
  },
  {
    id: "context",
    label: "Context",
    numeric: true,
    wide: true,
    sort: ({ context_tokens }) => context_tokens ?? -1,
    cell: ({ context_tokens }) => context_tokens !== null && compact(context_tokens),
  },
  {
    id: "first",
    label: "First token",
    numeric: true,
    wide: true,
    sort: ({ first_token_ms }) => first_token_ms ?? Number.MAX_VALUE,
    cell: ({ first_token_ms }) => first_token_ms !== null && seconds(first_token_ms),
  },
  {
    id: "cost",
    label: "Price, 1M tokens",
    sort: ({ input_usd }) => input_usd ?? -1,
    cell: (row) => (
      <span className="row wrap">
        {!isVideo({ ...row, model: row.id }) && row.input_usd !== null && (
          <span className="breaks">
            <span className="nowrap">{perMillion(row.input_usd)} in,</span>{" "}
            <span className="nowrap">{perMillion(row.output_usd)} out</span>
          </span>
        )}
        {billing(row)}
        {byUnit(row.full ?? { ...NEW_PATTERN, model: row.id, capabilities: row.capabilities })}
      </span>
    ),
  },
];

/** Prices for all models whose names begin alike. */
function Patterns({ prices, onEdit }: { prices: readonly ModelPrice[]; onEdit(price: ModelPrice): void }) {
  const rows = prices.filter(({ model }) => model.endsWith("*"));
  const remove = async (model: string) => {
    await api("billing.prices.remove", { model });
    backendsChanged();
  };
  const columns: Column<ModelPrice>[] = [
    { id: "model", label: "Models", cell: ({ model }) => <span className="mono">{model}</span> },
    {
      id: "price",
      label: "Price per million tokens",
      cell: ({ input_usd, output_usd }) => `${money(input_usd)} in, ${money(output_usd)} out`,
    },
    {
      id: "remove",
      label: "",
      numeric: true,
      cell: ({ model }) => (
        <Button
          small
          look="quiet"
          icon="close"
          aria-label={`Remove the price of ${model}`}
          onClick={(event) => {
            event.stopPropagation();
            remove(model).catch(toastError);
          }}
        />
      ),
    },
  ];
  if (rows.length === 0) return null;
  return (
    <Section title="Prices by pattern">
      <Table
        label="Prices by pattern"
        columns={columns}
        rows={rows}
        rowKey={({ model }) => model}
        onOpen={onEdit}
      />
    </Section>
  );
}

/** Every model that people can call, and for administrators its price to set. */
export function ModelList() {
  const isAdmin = useStore(session)?.user.is_admin ?? false;
  const models = useKnownModels();
  const prices = useQuery(isAdmin ? "prices" : null, () => api("billing.prices.list")).data;
  const byUnit = useUnitPriceInWords();
  const [pricing, setPricing] = useState<ModelPrice | null>(null);
  const [isImporting, setImporting] = useState(false);
  const byModel = new Map(prices?.map((price) => [price.model, price]));
  const perMillion = moneyFormat(
    models.data?.flatMap(({ input_usd, output_usd }) => [input_usd, output_usd]) ?? [],
  );
  const actions: Column<Row> = {
    id: "actions",
    label: "",
    numeric: true,
    cell: ({ id, full, available, capabilities }) => (
      <span className="row">
        {available && capabilities.includes("chat") && (
          <LinkButton href={`/playground?model=${encodeURIComponent(id)}`} small look="quiet">
            Try
          </LinkButton>
        )}
        {full && (
          <Button
            small
            look="quiet"
            className="wide"
            aria-label={`Set price of ${id}`}
            onClick={() => setPricing(full)}
          >
            Set price
          </Button>
        )}
      </span>
    ),
  };
  const columns = [...columnsFor({ perMillion, byUnit }), actions];
  return (
    <Loaded query={models} outline={<TableSkeleton columns={columns} />}>
      {(list) => (
        <>
          {prices && (
            <div className="row wrap">
              <Button onClick={() => setImporting(true)}>Import prices</Button>
              <Button onClick={() => setPricing(NEW_PATTERN)}>Price by pattern</Button>
            </div>
          )}
          {list.length === 0 ? (
            <NoModels />
          ) : (
            <Table
              label="Models"
              columns={columns}
              rows={list.map((model): Row => ({ ...model, full: byModel.get(model.id) }))}
              rowKey={({ id, served_by }) => `${served_by} ${id}`}
              words={({ id, served_by, capabilities, targets }) =>
                [id, served_by, ...capabilities, ...(targets ?? [])].join(" ")
              }
              dim={({ available }) => !available}
            />
          )}
          <Patterns prices={prices ?? []} onEdit={setPricing} />
          {isImporting && prices && <ImportPrices current={prices} onClose={() => setImporting(false)} />}
          {pricing && <SetPrice price={pricing} onClose={() => setPricing(null)} />}
        </>
      )}
    </Loaded>
  );
}
