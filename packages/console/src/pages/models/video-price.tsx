import { useState } from "react";
import { api } from "../../lib/api.ts";
import { backendsChanged } from "../../lib/backends.ts";
import { money } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import type { VideoPrice } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import type { Choice } from "../../ui/combobox.tsx";
import { Check, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";

const MODES: readonly Choice<VideoPrice["mode"]>[] = [
  { value: "per_second_resolution", label: "by second and resolution" },
  { value: "per_call", label: "by call" },
  { value: "per_frame", label: "by frame" },
];

export function videoPriceInWords({
  mode,
  base_price,
  price_per_second,
  price_per_frame,
}: VideoPrice): string {
  const base = base_price > 0 ? `${money(base_price)} + ` : "";
  if (mode === "per_call") return `${money(base_price)} a call`;
  return mode === "per_frame"
    ? `${base}${money(price_per_frame)} a frame`
    : `${base}${money(price_per_second)} a second`;
}

/** The factors as they are typed; the service judges the numbers. */
function readFactors(text: string): Record<string, number> {
  try {
    const factors: unknown = JSON.parse(text);
    if (typeof factors === "object" && factors !== null) return factors as Record<string, number>;
  } catch {}
  throw new Told("Resolution factors are not JSON", 'They look like {"720": 1, "1080": 2, "*": 1}.');
}

/** Sets the price of a video model: of the given row, of the given model, or of one that is asked for. */
export function VideoPriceForm({
  price,
  of = price?.model,
  onClose,
}: {
  price: VideoPrice | null;
  of?: string;
  onClose(): void;
}) {
  const [model, setModel] = useState(of ?? "");
  const [mode, setMode] = useState<VideoPrice["mode"]>(price?.mode ?? "per_second_resolution");
  const [base, setBase] = useState(String(price?.base_price ?? 0));
  const [second, setSecond] = useState(String(price?.price_per_second ?? 0));
  const [frame, setFrame] = useState(String(price?.price_per_frame ?? 0));
  const [coefficients, setCoefficients] = useState(JSON.stringify(price?.resolution_coeff ?? { "*": 1 }));
  const [enabled, setEnabled] = useState(price?.enabled ?? true);
  const save = async () => {
    await api("billing.prices.video.set", {
      model,
      mode,
      base_price: Number(base),
      price_per_second: Number(second),
      price_per_frame: Number(frame),
      resolution_coeff: readFactors(coefficients),
      enabled,
    });
    invalidate("video pricing");
    backendsChanged();
    toast("Saved");
  };
  return (
    <FormDialog
      title={of === undefined ? "Price of a video model" : `Price of ${of}`}
      submit="Save"
      onSubmit={save}
      onClose={onClose}
    >
      {of === undefined && (
        <TextField label="Model" value={model} onChange={setModel} required maxLength={128} />
      )}
      <SelectField label="Charged" value={mode} onChange={setMode} choices={MODES} />
      <div className="columns">
        <TextField label="Base price, $" type="number" min={0} step="any" value={base} onChange={setBase} />
        {mode === "per_second_resolution" && (
          <TextField
            label="Each second, $"
            type="number"
            min={0}
            step="any"
            value={second}
            onChange={setSecond}
          />
        )}
        {mode === "per_frame" && (
          <TextField
            label="Each frame, $"
            type="number"
            min={0}
            step="any"
            value={frame}
            onChange={setFrame}
          />
        )}
      </div>
      {mode === "per_second_resolution" && (
        <TextField
          label="Resolution factors"
          value={coefficients}
          onChange={setCoefficients}
          hint='By short side in pixels; "*" is for all others'
        />
      )}
      <Check label="Enabled" checked={enabled} onChange={setEnabled} />
    </FormDialog>
  );
}
