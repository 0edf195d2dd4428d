import { useState } from "react";
import { api } from "../../lib/api.ts";
import { useCallableModels } from "../../lib/models.ts";
import { rememberPrompt } from "../../lib/prompts.ts";
import { invalidate } from "../../lib/query.ts";
import { Field, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { NoModels } from "../../ui/no-models.tsx";

export function CreateVideo({ onClose }: { onClose(): void }) {
  const [chosen, setModel] = useState<string | null>(null);
  const [prompt, setPrompt] = useState("");
  const [duration, setDuration] = useState("5");
  const [width, setWidth] = useState("");
  const [height, setHeight] = useState("");
  const models = useCallableModels("video");
  const model = chosen ?? models.data?.[0] ?? "";
  const create = async () => {
    const { job_id } = await api("video.create", {
      model: model.trim(),
      prompt,
      duration_seconds: Number(duration),
      ...(width && { width: Number(width) }),
      ...(height && { height: Number(height) }),
    });
    rememberPrompt(job_id, prompt);
    invalidate("videos");
  };
  return (
    <FormDialog title="New video" submit="Start" onSubmit={create} onClose={onClose}>
      {models.data?.length === 0 && <NoModels capability="video" />}
      <TextField
        label="Model"
        value={model}
        onChange={setModel}
        // The first model is not put under the hands of someone who has begun to write.
        onFocus={() => models.data && setModel(model)}
        required
        list="video-models"
      />
      <datalist id="video-models">
        {models.data?.map((id) => (
          <option key={id} value={id} />
        ))}
      </datalist>
      <Field label="Prompt">
        {(id) => (
          <textarea
            id={id}
            className="textarea"
            rows={4}
            required
            value={prompt}
            onChange={(event) => setPrompt(event.target.value)}
          />
        )}
      </Field>
      <div className="columns">
        <TextField label="Seconds" type="number" min={1} max={60} value={duration} onChange={setDuration} />
        <TextField
          label="Width"
          type="number"
          min={64}
          value={width}
          onChange={setWidth}
          placeholder="default"
        />
        <TextField
          label="Height"
          type="number"
          min={64}
          value={height}
          onChange={setHeight}
          placeholder="default"
        />
      </div>
    </FormDialog>
  );
}
