import { Check, Field, TextField } from "../../ui/controls.tsx";
import { Note } from "../../ui/states.tsx";
import { type Parameters, problemOf } from "./parameters.ts";

const EXAMPLE_TOOL = `[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`;

function LongField({
  label,
  hint,
  value,
  onChange,
  placeholder,
  mono = false,
}: {
  label: string;
  hint?: string;
  value: string;
  onChange(value: string): void;
  placeholder?: string;
  mono?: boolean;
}) {
  return (
    <Field label={label} hint={hint}>
      {(id, describedBy) => (
        <textarea
          id={id}
          aria-describedby={describedBy}
          className={mono ? "textarea mono" : "textarea"}
          rows={3}
          placeholder={placeholder}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

export function ParametersPanel({
  value,
  onChange,
}: {
  value: Parameters;
  onChange(value: Parameters): void;
}) {
  const set = (field: keyof Parameters) => (text: string) => onChange({ ...value, [field]: text });
  const problem = problemOf(value);
  return (
    <aside className="parameters form" aria-label="Parameters">
      <LongField label="System prompt" value={value.system} onChange={set("system")} />
      <div className="columns">
        <TextField
          label="Temperature"
          type="number"
          min={0}
          max={2}
          step={0.1}
          value={value.temperature}
          onChange={set("temperature")}
          placeholder="default"
        />
        <TextField
          label="Top p"
          type="number"
          min={0}
          max={1}
          step={0.05}
          value={value.topP}
          onChange={set("topP")}
          placeholder="default"
        />
        <TextField
          label="Max tokens"
          type="number"
          min={1}
          step={1}
          value={value.maxTokens}
          onChange={set("maxTokens")}
          placeholder="default"
        />
        <TextField label="Backend" value={value.provider} onChange={set("provider")} placeholder="any" />
      </div>
      <LongField
        label="Tools"
        hint="A JSON array of function definitions, sent as it is"
        mono
        placeholder={EXAMPLE_TOOL}
        value={value.tools}
        onChange={set("tools")}
      />
      <LongField
        label="Other fields"
        hint="A JSON object, merged into the request"
        mono
        placeholder='{"seed": 1, "stop": ["END"]}'
        value={value.extra}
        onChange={set("extra")}
      />
      {problem && <Note tone="bad">{problem}</Note>}
      <Check
        label="Use long-term memory"
        checked={value.memory}
        onChange={(memory) => onChange({ ...value, memory })}
      />
    </aside>
  );
}
