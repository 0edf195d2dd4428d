import { Check, Field, TextField } from "../../ui/controls.tsx";
import { Note } from "../../ui/states.tsx";

export interface Parameters {
  system: string;
  temperature: string;
  maxTokens: string;
  provider: string;
  tools: string;
  memory: boolean;
}

export const EMPTY_PARAMETERS: Parameters = {
  system: "",
  temperature: "",
  maxTokens: "",
  provider: "",
  tools: "",
  memory: true,
};

const EXAMPLE_TOOL = `[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`;

function parseTools(text: string): { tools?: unknown[]; problem?: string } {
  if (text.trim() === "") return {};
  try {
    const tools: unknown = JSON.parse(text);
    return Array.isArray(tools) ? { tools } : { problem: "Tools must be a JSON array" };
  } catch (error) {
    return { problem: `Tools are not valid JSON: ${(error as Error).message}` };
  }
}

/** The request's fields; what was left empty is left out, so that the model's own default applies. */
export function fieldsOf({
  temperature,
  maxTokens,
  provider,
  tools,
  memory,
}: Parameters): Record<string, unknown> {
  const parsed = parseTools(tools).tools;
  return {
    ...(temperature !== "" && { temperature: Number(temperature) }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
    ...(provider !== "" && { provider }),
    ...(parsed && parsed.length > 0 && { tools: parsed }),
    ...(!memory && { memory: false }),
  };
}

export function ParametersPanel({
  value,
  onChange,
}: {
  value: Parameters;
  onChange(value: Parameters): void;
}) {
  const set = (field: keyof Parameters) => (text: string) => onChange({ ...value, [field]: text });
  const { problem } = parseTools(value.tools);
  return (
    <section className="panel form" aria-label="Parameters">
      <div className="columns">
        <TextField
          label="Temperature"
          type="number"
          min={0}
          max={2}
          step={0.1}
          value={value.temperature}
          onChange={set("temperature")}
          placeholder="the model's own"
        />
        <TextField
          label="Max tokens"
          type="number"
          min={1}
          step={1}
          value={value.maxTokens}
          onChange={set("maxTokens")}
          placeholder="the model's own"
        />
        <TextField
          label="Backend"
          value={value.provider}
          onChange={set("provider")}
          placeholder="any"
          hint="Name or kind; only such a backend is asked"
        />
      </div>
      <Field label="System prompt">
        {(id) => (
          <textarea
            id={id}
            className="textarea"
            rows={2}
            value={value.system}
            onChange={(event) => set("system")(event.target.value)}
          />
        )}
      </Field>
      <Field label="Tools" hint="A JSON array of function definitions, sent as it is">
        {(id, describedBy) => (
          <textarea
            id={id}
            aria-describedby={describedBy}
            className="textarea mono"
            rows={3}
            placeholder={EXAMPLE_TOOL}
            value={value.tools}
            onChange={(event) => set("tools")(event.target.value)}
          />
        )}
      </Field>
      {problem && <Note tone="bad">{problem}</Note>}
      <Check
        label="Use long-term memory where it is enabled"
        checked={value.memory}
        onChange={(memory) => onChange({ ...value, memory })}
      />
    </section>
  );
}
