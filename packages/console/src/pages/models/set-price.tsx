import { abilitiesOf, type Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { backendsChanged } from "../../lib/backends.ts";
import { money } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import type { Choice } from "../../ui/combobox.tsx";
import { Field, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { VideoPriceForm, videoPriceInWords } from "./video-price.tsx";

export type ModelPrice = Result<"billing.prices.list">[number];

/** Models that only make videos have their price in another table. */
export function isVideo({ model, capabilities }: Pick<ModelPrice, "model" | "capabilities">): boolean {
  const abilities = abilitiesOf({ id: model, capabilities });
  return abilities.length > 0 && abilities.every((ability) => ability === "video");
}

const useVideoPrices = () => useQuery("video pricing", () => api("billing.video.pricing.get"));

/** What a model costs by other units than the token; null when it has no such price. */
export function useUnitPriceInWords(): (price: ModelPrice) => string | null {
  const rows = useVideoPrices().data?.pricing;
  return (price) => {
    if (isVideo(price)) {
      const row = rows?.find(({ model, enabled }) => enabled && model === price.model);
      return row ? videoPriceInWords(row) : "default: $0.005 a second";
    }
    const { per_image_usd, per_second_usd, per_million_characters_usd, per_call_usd } = price;
    const images = typeof per_image_usd === "object" ? Object.values(per_image_usd) : [per_image_usd];
    const [least, most] = [Math.min(...images.map(Number)), Math.max(...images.map(Number))];
    const parts = [
      per_image_usd !== undefined &&
        `${least === most ? money(most) : `${money(least)} to ${money(most)}`} an image`,
      per_second_usd !== undefined && `${money(per_second_usd)} a second`,
      per_million_characters_usd !== undefined && `${money(per_million_characters_usd)} a million characters`,
      per_call_usd !== undefined && `${money(per_call_usd)} a request`,
    ].filter((part) => part !== false);
    return parts.length > 0 ? parts.join(", ") : null;
  };
}

/** What a model costs: by the token, by another unit, or by the second of video. */
export function SetPrice({ price, onClose }: { price: ModelPrice; onClose(): void }) {
  const video = useVideoPrices();
  if (!isVideo(price)) return <ModelPriceForm price={price} onClose={onClose} />;
  // The form begins with what is there, so it waits for that.
  if (video.loading && !video.data) return null;
  const row = video.data?.pricing.find(({ model }) => model === price.model) ?? null;
  return <VideoPriceForm price={row} of={price.model} onClose={onClose} />;
}

type Unit = "tokens" | "image" | "second" | "characters" | "call";
const UNITS: readonly Choice<Unit>[] = [
  { value: "tokens", label: "tokens: chats, embeddings, voice" },
  { value: "image", label: "images" },
  { value: "second", label: "seconds of sound: transcriptions" },
  { value: "characters", label: "characters: speech" },
  { value: "call", label: "requests: rankings, moderations, all else" },
];

const unitOf = (price: ModelPrice): Unit => {
  if (price.per_image_usd !== undefined) return "image";
  if (price.per_second_usd !== undefined) return "second";
  if (price.per_million_characters_usd !== undefined) return "characters";
  return price.per_call_usd !== undefined ? "call" : "tokens";
};

const textOf = (usd: number | null | undefined): string => (usd == null ? "" : String(usd));
const numberOf = (text: string): number | undefined => (text.trim() === "" ? undefined : Number(text));
const linesOf = (prices: ModelPrice["per_image_usd"]): string =>
  typeof prices === "object"
    ? Object.entries(prices)
        .map(([look, usd]) => `${look} ${usd}`)
        .join("\n")
    : "";

/** "hd/1024x1024 0.08", one a line. */
function readLines(text: string): Record<string, number> | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length === 0) return null;
  return Object.fromEntries(
    lines.map((line) => {
      const [look = "", usd = "", ...more] = line.trim().toLowerCase().split(/\s+/);
      if (usd === "" || more.length > 0 || !Number.isFinite(Number(usd)))
        throw new Told(
          `"${line.trim()}" is not a price`,
          "Each line is a look and its price: hd/1024x1024 0.08",
        );
      return [look, Number(usd)];
    }),
  );
}

function ModelPriceForm({ price, onClose }: { price: ModelPrice; onClose(): void }) {
  const [model, setModel] = useState(price.model);
  const [unit, setUnit] = useState<Unit>(unitOf(price));
  const [inputUsd, setInput] = useState(textOf(price.input_usd));
  const [outputUsd, setOutput] = useState(textOf(price.output_usd));
  const [cached, setCached] = useState(textOf(price.parts.cached_input));
  const [write, setWrite] = useState(textOf(price.parts.cache_write));
  const [hour, setHour] = useState(textOf(price.parts.cache_write_1h));
  const [image, setImage] = useState(
    typeof price.per_image_usd === "number" ? textOf(price.per_image_usd) : "",
  );
  const [looks, setLooks] = useState(linesOf(price.per_image_usd));
  const [second, setSecond] = useState(textOf(price.per_second_usd));
  const [characters, setCharacters] = useState(textOf(price.per_million_characters_usd));
  const [call, setCall] = useState(textOf(price.per_call_usd));
  const given = () => {
    if (unit === "tokens") {
      const parts = {
        ...{ ...price.parts, cached_input: numberOf(cached) },
        ...{ cache_write: numberOf(write), cache_write_1h: numberOf(hour) },
      };
      return { input_usd: Number(inputUsd), output_usd: Number(outputUsd), parts };
    }
    if (unit === "image") return { per_image_usd: readLines(looks) ?? Number(image) };
    if (unit === "second") return { per_second_usd: Number(second) };
    return unit === "characters"
      ? { per_million_characters_usd: Number(characters) }
      : { per_call_usd: Number(call) };
  };
  const save = async () => {
    await api("billing.prices.set", { model: model.trim(), ...given() });
    backendsChanged();
    toast(`${model} has its price`);
  };
  const speaks = price.capabilities.includes("realtime");
  return (
    <FormDialog
      title={`Price of ${price.model || "many models"}`}
      submit="Save"
      onSubmit={save}
      onClose={onClose}
    >
      <TextField
        label="Model"
        field="model"
        value={model}
        onChange={setModel}
        required
        placeholder="openai/*"
        hint="With a star at the end: every model whose name begins so and has no price of its own"
      />
      <SelectField label="Charged by" value={unit} onChange={setUnit} choices={UNITS} />
      {unit === "tokens" && (
        <>
          <div className="columns">
            <Dollars
              label="In, $ per million tokens"
              field="input_usd"
              value={inputUsd}
              onChange={setInput}
              hint={speaks ? "A token of speech costs the same: give the dearer rate" : undefined}
            />
            <Dollars
              label="Out, $ per million tokens"
              field="output_usd"
              value={outputUsd}
              onChange={setOutput}
              hint={speaks ? undefined : "0 for embeddings, which write none"}
            />
          </div>
          <div className="columns">
            <Dollars
              label="Cached"
              field="parts.cached_input"
              value={cached}
              onChange={setCached}
              required={false}
              hint="Empty: as In"
            />
            <Dollars
              label="Cache write"
              field="parts.cache_write"
              value={write}
              onChange={setWrite}
              required={false}
            />
            <Dollars
              label="For an hour"
              field="parts.cache_write_1h"
              value={hour}
              onChange={setHour}
              required={false}
            />
          </div>
        </>
      )}
      {unit === "image" && (
        <>
          <Dollars
            label="Each image, $"
            field="per_image_usd"
            value={image}
            onChange={setImage}
            required={looks.trim() === ""}
          />
          <Field label="By quality or size" hint="One a line, instead of one price: hd/1024x1024 0.08">
            {(id, describedBy) => (
              <textarea
                id={id}
                aria-describedby={describedBy}
                className="textarea mono"
                rows={3}
                value={looks}
                onChange={(event) => setLooks(event.target.value)}
              />
            )}
          </Field>
        </>
      )}
      {unit === "second" && (
        <Dollars label="Each second, $" field="per_second_usd" value={second} onChange={setSecond} />
      )}
      {unit === "characters" && (
        <Dollars
          label="A million characters, $"
          field="per_million_characters_usd"
          value={characters}
          onChange={setCharacters}
        />
      )}
      {unit === "call" && (
        <Dollars label="Each request, $" field="per_call_usd" value={call} onChange={setCall} />
      )}
      <p className="muted small">
        It is in force at once, for requests from now on. It goes before the built-in prices and the pricing
        file.
      </p>
    </FormDialog>
  );
}

function Dollars({ required = true, ...rest }: Parameters<typeof TextField>[0]) {
  return <TextField type="number" min={0} step="any" required={required} {...rest} />;
}
