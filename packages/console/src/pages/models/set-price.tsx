import { useState } from "react";
import { api } from "../../lib/api.ts";
import { backendsChanged } from "../../lib/backends.ts";
import { toast } from "../../lib/toast.ts";
import { TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";

/** What a model costs, in the unit that providers publish. */
export function SetPrice({
  model,
  input = null,
  output = null,
  onClose,
}: {
  model: string;
  input?: number | null;
  output?: number | null;
  onClose(): void;
}) {
  const [inputUsd, setInput] = useState(input === null ? "" : String(input));
  const [outputUsd, setOutput] = useState(output === null ? "" : String(output));
  const save = async () => {
    await api("billing.prices.set", { model, input_usd: Number(inputUsd), output_usd: Number(outputUsd) });
    backendsChanged();
    toast(`${model} has its price`);
  };
  return (
    <FormDialog title={`Price of ${model}`} submit="Save" onSubmit={save} onClose={onClose}>
      <div className="columns">
        <TextField
          label="In, $ per million tokens"
          type="number"
          min={0}
          step="any"
          value={inputUsd}
          onChange={setInput}
          required
        />
        <TextField
          label="Out, $ per million tokens"
          type="number"
          min={0}
          step="any"
          value={outputUsd}
          onChange={setOutput}
          required
          hint="0 for embeddings, which write none"
        />
      </div>
      <p className="muted small">
        It is in force at once, for requests from now on. It goes before the built-in prices and the pricing
        file.
      </p>
    </FormDialog>
  );
}
