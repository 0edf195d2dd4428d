import { useState } from "react";
import { client } from "../../lib/client.ts";
import { invalidate } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { FoundServers } from "./found-servers.tsx";

const TYPES = [
  { value: "local-server", label: "Ollama (native API, models found by itself)" },
  { value: "external", label: "Any chat-completions server or service" },
  { value: "vllm", label: "vLLM" },
  { value: "sglang", label: "SGLang" },
  { value: "llama_cpp", label: "llama.cpp" },
  { value: "lmstudio", label: "LM Studio" },
  { value: "engine", label: "Engine (WebSocket)" },
  { value: "cloud-video", label: "Cloud video" },
  { value: "cloud-realtime", label: "Cloud realtime voice" },
];

export function RegisterBackend({ onClose }: { onClose(): void }) {
  const [type, setType] = useState("local-server");
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [apiKey, setApiKey] = useState("");
  const [models, setModels] = useState("");
  const register = async () => {
    const list = models.split(/[\s,]+/).filter(Boolean);
    await client.admin.registerBackend({
      type,
      url,
      ...(name && { name }),
      ...(apiKey && { api_key: apiKey }),
      ...(list.length > 0 && { models: list }),
    });
    invalidate("backends");
    invalidate("models");
    invalidate("health");
    toast("Registered; its models can be called as soon as it answers");
  };
  return (
    <FormDialog title="Register a backend" submit="Register" onSubmit={register} onClose={onClose}>
      <FoundServers onRegistered={onClose} />
      <SelectField label="Kind" value={type} onChange={setType} choices={TYPES} />
      <TextField
        label="Address"
        value={url}
        onChange={setUrl}
        required
        placeholder="http://localhost:11434"
        hint="The base address; bridge:// addresses work too"
      />
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        placeholder={type}
        maxLength={64}
        hint="Requests can choose it by this name; an existing name is replaced"
      />
      <TextField
        label="Its key"
        type="password"
        value={apiKey}
        onChange={setApiKey}
        autoComplete="off"
        hint="Sent to the backend as a bearer; never shown again"
      />
      {type !== "local-server" && (
        <TextField
          label="Models"
          value={models}
          onChange={setModels}
          placeholder="found by itself where the server lists them"
          hint="Ids, separated by commas"
        />
      )}
    </FormDialog>
  );
}
