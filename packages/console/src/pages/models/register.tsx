import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { type Backend, backendsChanged } from "../../lib/backends.ts";
import { plural } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { FormError, Loaded, Status } from "../../ui/states.tsx";
import { FoundServers } from "./found-servers.tsx";

type Types = Result<"backends.types">;
type Field = Types["types"][number]["fields"][number];

const LENGTH_MAX: Partial<Record<Field["name"], number>> = { name: 64 };

/** What was entered, as the registration takes it; an empty field is left out. */
const entered = (fields: readonly Field[], values: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    fields.flatMap(({ name, input }) => {
      const text = values[name] ?? "";
      const value = input === "list" ? text.split(/[\s,]+/).filter(Boolean) : text;
      return value.length > 0 ? [[name, value]] : [];
    }),
  );

const valuesOf = ({ url, listed_models }: Backend): Record<string, string> => ({
  url,
  models: listed_models.join(", "),
});

/** Registers a backend, or changes the given one. */
export function BackendForm({ backend, onClose }: { backend?: Backend; onClose(): void }) {
  const query = useQuery("backend types", () => api("backends.types"));
  const [chosen, setChosen] = useState<string | null>(backend?.type ?? null);
  const [values, setValues] = useState<Record<string, string>>(backend ? valuesOf(backend) : {});
  const type = chosen ?? query.data?.default_type ?? "";
  const known = query.data?.types.find((each) => each.type === type) ?? query.data?.types[0];
  const fields = (known?.fields ?? []).filter(({ name }) => !backend || name !== "name");
  const test = useAction(async () =>
    setResult(await api("backends.test", { type, ...entered(fields, values) })),
  );
  const [result, setResult] = useState<Result<"backends.test"> | null>(null);
  const save = async () => {
    const given = { type, ...entered(fields, values) };
    if (backend) {
      // An emptied list is a change, unlike a field that was left empty.
      await api("backends.update", { models: [], ...given, name: backend.name });
    } else await api("backends.add", given);
    backendsChanged();
    toast(
      backend ? "Saved; it is being probed" : "Registered; its models can be called as soon as it answers",
    );
  };
  return (
    <FormDialog
      title={backend ? `Edit ${backend.name}` : "Register a backend"}
      submit={backend ? "Save" : "Register"}
      onSubmit={save}
      onClose={onClose}
    >
      {!backend && <FoundServers onRegistered={onClose} />}
      <Loaded query={query}>
        {({ types }) => (
          <>
            <SelectField label="Kind" value={type} onChange={setChosen} choices={choicesOf(types, type)} />
            {fields.map(({ name, label, input, required, placeholder, hint }) => (
              <TextField
                key={name}
                label={label}
                type={input === "password" ? "password" : "text"}
                value={values[name] ?? ""}
                onChange={(value) => {
                  setResult(null);
                  setValues({ ...values, [name]: value });
                }}
                required={required}
                placeholder={placeholder ?? (name === "name" ? type : undefined)}
                maxLength={LENGTH_MAX[name]}
                autoComplete="off"
                hint={backend?.has_key && name === "api_key" ? "Left empty, the key stays as it is" : hint}
              />
            ))}
            <div className="row wrap">
              <Button icon="play" busy={test.busy} onClick={() => void test.run()}>
                Test connection
              </Button>
              {result && <TestResult result={result} />}
            </div>
            <FormError error={test.error} />
          </>
        )}
      </Loaded>
    </FormDialog>
  );
}

function TestResult({ result: { ok, detail, models, latency_ms } }: { result: Result<"backends.test"> }) {
  if (!ok) return <Status tone="bad">{detail ?? "It does not answer"}</Status>;
  const took = latency_ms === null ? "" : ` in ${Math.round(latency_ms)} ms`;
  return (
    <Status tone="good">
      Answers{took}, {plural(models.length, "model")} found
    </Status>
  );
}

/** By label; a type that the form does not offer is still what it is. */
const choicesOf = (types: Types["types"], chosen: string) => [
  ...(types.some(({ type }) => type === chosen) ? [] : [{ value: chosen, label: chosen }]),
  ...types
    .map(({ type, label }) => ({ value: type, label }))
    .sort((one, other) => one.label.localeCompare(other.label)),
];
