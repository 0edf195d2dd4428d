import { useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { rememberPrompt } from "../../lib/prompts.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Field, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";

export function CreateVideo({ onClose }: { onClose(): void }) {
  const [model, setModel] = useState("");
  const [prompt, setPrompt] = useState("");
  const [duration, setDuration] = useState("5");
  const [width, setWidth] = useState("");
  const [height, setHeight] = useState("");
  const models = useQuery("models", () => client.rest.models()).data ?? [];
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
      <TextField
        label="Model"
        value={model}
        onChange={setModel}
        required
        list="video-models"
        hint="One that a video backend serves"
      />
      <datalist id="video-models">
        {models.map(({ id }) => (
          <option key={id} value={id} />
        ))}
      </datalist>
      <Field label="What is to be seen">
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
          placeholder="the model's own"
        />
        <TextField
          label="Height"
          type="number"
          min={64}
          value={height}
          onChange={setHeight}
          placeholder="the model's own"
        />
      </div>
    </FormDialog>
  );
}
