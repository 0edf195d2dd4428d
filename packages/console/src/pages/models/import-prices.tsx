import { type PriceChange, priceChanges, readPriceList } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { backendsChanged } from "../../lib/backends.ts";
import { plural } from "../../lib/format.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import { Field } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import type { ModelPrice } from "./set-price.tsx";

/** The most that one call takes. */
const PRICES_A_CALL = 1_000;

const fromTo = (before: number | null | undefined, after: number | undefined) =>
  before === after ? (after ?? "") : `${before ?? "none"} → ${after ?? "none"}`;

const columns: Column<PriceChange>[] = [
  { id: "model", label: "Model", cell: ({ price }) => <span className="mono nowrap">{price.model}</span> },
  {
    id: "in",
    label: "In",
    numeric: true,
    cell: ({ before, price }) => fromTo(before.input_usd, price.input_usd),
  },
  {
    id: "out",
    label: "Out",
    numeric: true,
    cell: ({ before, price }) => fromTo(before.output_usd, price.output_usd),
  },
  {
    id: "cached",
    label: "Cached",
    numeric: true,
    cell: ({ before, price }) => fromTo(before.parts.cached_input, price.parts?.cached_input),
  },
  { id: "from", label: "From", wide: true, cell: ({ from }) => <span className="mono">{from}</span> },
];

/** Takes prices from a file of models.dev or LiteLLM, after showing what would change. */
export function ImportPrices({ current, onClose }: { current: ModelPrice[]; onClose(): void }) {
  const [read, setRead] = useState<{ changes: PriceChange[]; problem: string | null } | null>(null);
  const choose = async (file: File | undefined) => {
    if (!file) return setRead(null);
    try {
      setRead({
        changes: priceChanges(readPriceList(JSON.parse(await file.text())), current),
        problem: null,
      });
    } catch (error) {
      setRead({ changes: [], problem: (error as Error).message });
    }
  };
  const changes = read?.changes ?? [];
  const save = async () => {
    if (changes.length === 0)
      throw new Told("Nothing to import", "Choose a list whose prices differ from these");
    for (let at = 0; at < changes.length; at += PRICES_A_CALL)
      await api("billing.prices.import", {
        prices: changes.slice(at, at + PRICES_A_CALL).map(({ price }) => price),
      });
    backendsChanged();
    toast(`${plural(changes.length, "price is", "prices are")} in force`);
  };
  return (
    <FormDialog kind="modal wide" title="Import prices" submit="Import" onSubmit={save} onClose={onClose}>
      <Field
        label="Price list"
        hint="models.dev/api.json, or LiteLLM's model_prices_and_context_window.json, saved as a file"
      >
        {(id, describedBy) => (
          <input
            id={id}
            aria-describedby={describedBy}
            type="file"
            accept=".json,application/json"
            onChange={(event) => choose(event.target.files?.[0])}
          />
        )}
      </Field>
      {read?.problem && <p className="muted">Not a price list: {read.problem}</p>}
      {read && !read.problem && (
        <>
          <p className="muted">
            {changes.length === 0
              ? "Every model that can be called now already has these prices, or is not in the list."
              : `What changes, in dollars per million tokens, for ${changes.length} of ${current.length} models:`}
          </p>
          {changes.length > 0 && (
            <Table label="Changes" columns={columns} rows={changes} rowKey={({ price }) => price.model} />
          )}
        </>
      )}
    </FormDialog>
  );
}
