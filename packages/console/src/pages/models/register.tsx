import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { Loaded } from "../../ui/states.tsx";
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

export function RegisterBackend({ onClose }: { onClose(): void }) {
  const query = useQuery("backend types", () => api("backends.types"));
  const [chosen, setChosen] = useState<string | null>(null);
  const [values, setValues] = useState<Record<string, string>>({});
  const type = chosen ?? query.data?.default_type ?? "";
  const fields = query.data?.types.find((each) => each.type === type)?.fields ?? [];
  const register = async () => {
    await client.admin.registerBackend({ type, ...entered(fields, values) });
    invalidate("backends");
    invalidate("models");
    invalidate("health");
    toast("Registered; its models can be called as soon as it answers");
  };
  return (
    <FormDialog title="Register a backend" submit="Register" onSubmit={register} onClose={onClose}>
      <FoundServers onRegistered={onClose} />
      <Loaded query={query}>
        {({ types }) => (
          <>
            <SelectField label="Kind" value={type} onChange={setChosen} choices={choicesOf(types)} />
            {fields.map(({ name, label, input, required, placeholder, hint }) => (
              <TextField
                key={name}
                label={label}
                type={input === "password" ? "password" : "text"}
                value={values[name] ?? ""}
                onChange={(value) => setValues({ ...values, [name]: value })}
                required={required}
                placeholder={placeholder ?? (name === "name" ? type : undefined)}
                maxLength={LENGTH_MAX[name]}
                autoComplete="off"
                hint={hint}
              />
            ))}
          </>
        )}
      </Loaded>
    </FormDialog>
  );
}

const choicesOf = (types: Types["types"]) =>
  types
    .map(({ type, label }) => ({ value: type, label }))
    .sort((one, other) => one.label.localeCompare(other.label));
