import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { type Backend, backendsChanged } from "../../lib/backends.ts";
import { useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import { Button, Field, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { FormError, Loaded } from "../../ui/states.tsx";
import type { Address } from "./add-backend.tsx";
import { Trials, useContact } from "./contact.tsx";
import { SetPrice } from "./set-price.tsx";
import { type Tested, TestResult } from "./test-result.tsx";

type Types = Result<"backends.types">;
type FieldOf = Types["types"][number]["fields"][number];

const LENGTH_MAX: Partial<Record<FieldOf["name"], number>> = { name: 64 };

/** Members of an object, as `name: value` on a line each; a value is JSON where it can be read as such. */
const membersIn = (lines: string, isText: boolean): Record<string, unknown> =>
  Object.fromEntries(
    lines.split("\n").flatMap((line) => {
      const [, name, text = ""] = /^\s*([^:\s]+)\s*:\s*(.*?)\s*$/.exec(line) ?? [];
      return name === undefined ? [] : [[name, isText ? text : jsonIn(text)]];
    }),
  );

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** What was entered, as the registration takes it; an empty field is left out. */
const entered = (fields: readonly FieldOf[], values: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    fields.flatMap(({ name, input }): [string, unknown][] => {
      const text = (values[name] ?? "").trim();
      if (text === "") return [];
      if (input === "list") return [[name, text.split(/[\s,]+/).filter(Boolean)]];
      return [[name, input === "members" ? membersIn(text, name === "headers") : text]];
    }),
  );

const valuesOf = (backend: Backend): Record<string, string> => ({
  url: backend.url,
  models: backend.listed_models.join(", "),
  dialects: backend.dialects.join(", "),
  auth: backend.auth ?? "",
  limit_field: backend.limit_field ?? "",
  id_prefix: backend.id_prefix ?? "",
  set: Object.entries(backend.set)
    .map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
    .join("\n"),
  drop: backend.drop.join(", "),
});

/** What an emptied field means; secrets that are left empty stay. */
const EMPTIED = {
  models: [],
  dialects: null,
  auth: null,
  limit_field: null,
  id_prefix: null,
  set: null,
  drop: null,
};

/** What the kind of a server is found out by, in this order: Ollama also speaks what the others do. */
const GUESSES = ["local-server", "external"] as const;
const FOUND_OUT_BY: ReadonlySet<string> = new Set(["url", "name", "api_key"]);
const FIND_OUT = { value: "", label: "Find out" };

/** What a provider's card fills in; of no provider in particular: nothing. */
interface Preset {
  provider: { id: string; name: string } | null;
  addresses: readonly Address[];
}

const presetValues = ({ provider, addresses }: Preset, index: number): Record<string, string> => ({
  ...(provider && { name: index === 0 ? provider.id : `${provider.id}-${index + 1}` }),
  ...(addresses[index] && {
    url: addresses[index].url,
    auth: addresses[index].auth ?? "",
    // What a server of one's own speaks depends on its version, so its test decides.
    dialects: addresses[index].needs_key ? addresses[index].dialects.join(", ") : "",
  }),
});

/** Registers a backend, or changes the given one. */
export function BackendForm({
  backend,
  preset = { provider: null, addresses: [] },
  onBack,
  onClose,
}: {
  backend?: Backend;
  preset?: Preset;
  /** To the choice of a provider. */
  onBack?(): void;
  onClose(): void;
}) {
  const query = useQuery("backend types", () => api("backends.types"));
  const [service, setService] = useState(0);
  const [chosen, setChosen] = useState<string | null>(backend?.type ?? null);
  const [values, setValues] = useState<Record<string, string>>(
    backend ? valuesOf(backend) : presetValues(preset, 0),
  );
  const [tested, setTested] = useState<Tested | null>(null);
  const [pricing, setPricing] = useState<Tested["prices"][number] | null>(null);
  const address = preset.addresses[service];
  // Empty: it is found out.
  const type = address?.type ?? chosen ?? "";
  const known = query.data?.types.find((each) => each.type === (type || GUESSES.at(-1)));
  const fields = (known?.fields ?? []).filter(({ name }) =>
    type === "" ? FOUND_OUT_BY.has(name) : !backend || name !== "name",
  );
  const contact = useContact();
  const given = entered(fields, values) as { url?: string };
  const contactAs = async (kind: string): Promise<Tested> => {
    const result = await contact.run({ ...given, type: kind, ...(backend && { name: backend.name }) });
    const prices = result.ok ? await api("billing.prices.list", { models: result.models, type: kind }) : [];
    return { ...result, prices, type: kind };
  };
  const runTest = async () => {
    setTested(null);
    let found: Tested | null = null;
    for (const kind of type ? [type] : GUESSES) if (!found?.ok) found = await contactAs(kind);
    setTested(found);
    return found!;
  };
  const test = useAction(runTest);
  const save = async () => {
    // A wrong key or address shows now, not as a backend that never answers. A second press saves it all the same.
    let found = tested;
    if (!backend && found === null && !given.url?.startsWith("bridge:")) {
      found = await runTest();
      if (!found.ok)
        throw new Told("The test failed", "Correct it, or press Register again to save it all the same.");
    }
    if (backend) {
      // An emptied list is a change, unlike a field that was left empty.
      const seen = found?.seen && { seen: found.seen };
      await api("backends.update", {
        ...(known?.fields.some(({ is_more }) => is_more) ? EMPTIED : { models: [] }),
        ...{ ...given, type, ...seen, name: backend.name },
      });
    } else await api("backends.add", { ...given, type: type || found?.type, seen: found?.seen ?? null });
    backendsChanged();
    toast(
      backend ? "Saved; it is being probed" : "Registered; its models can be called as soon as it answers",
    );
  };
  const fill = (changed: Record<string, string>) => {
    setTested(null);
    setValues(changed);
  };
  const input = (field: FieldOf) => (
    <BackendField
      key={field.name}
      field={field}
      value={values[field.name] ?? ""}
      onChange={(value) => fill({ ...values, [field.name]: value })}
      required={
        field.required ||
        (field.name === "api_key" && Boolean(address?.needs_key)) ||
        (field.name === "models" && Boolean(address?.needs_models))
      }
      placeholder={field.placeholder ?? (field.name === "name" ? type : undefined)}
      hint={keptHint(field, backend) ?? field.hint}
    />
  );
  const title = backend ? `Edit ${backend.name}` : `Register ${preset.provider?.name ?? "a backend"}`;
  return (
    <>
      <FormDialog title={title} submit={backend ? "Save" : "Register"} onSubmit={save} onClose={onClose}>
        {onBack && (
          <div>
            <Button small look="quiet" icon="back" onClick={onBack}>
              All providers
            </Button>
          </div>
        )}
        <Loaded query={query}>
          {({ types }) => (
            <>
              {!address && (
                <SelectField
                  label="Kind"
                  value={type}
                  onChange={setChosen}
                  choices={[...(backend ? [] : [FIND_OUT]), ...choicesOf(types, type)]}
                />
              )}
              {preset.addresses.length > 1 && (
                <SelectField
                  label="Service"
                  value={String(service)}
                  onChange={(index) => {
                    setService(Number(index));
                    fill({ ...values, ...presetValues(preset, Number(index)) });
                  }}
                  choices={preset.addresses.map(({ serves }, index) => ({
                    value: String(index),
                    label: serves,
                  }))}
                />
              )}
              {inOrder(fields, address)
                .filter(({ is_more }) => !is_more)
                .map(input)}
              {fields.some(({ is_more }) => is_more) && (
                <details className="folded">
                  <summary>How it is spoken to</summary>
                  <div className="stack">{fields.filter(({ is_more }) => is_more).map(input)}</div>
                </details>
              )}
              <div>
                <Button icon="play" busy={test.busy} onClick={() => void test.run()}>
                  Test connection
                </Button>
              </div>
              {contact.trials.length > 0 && <Trials trials={contact.trials} />}
              {tested && <TestResult result={tested} onPrice={setPricing} />}
              <FormError error={test.error} />
            </>
          )}
        </Loaded>
      </FormDialog>
      {pricing && (
        <SetPrice
          price={pricing}
          onClose={() => {
            setPricing(null);
            void test.run();
          }}
        />
      )}
    </>
  );
}

/** Of a secret that is set: leaving it empty does not take it away. */
function keptHint({ name }: FieldOf, backend: Backend | undefined): string | null {
  if (name === "api_key" && backend?.has_key) return "Left empty, the key stays as it is";
  if (name !== "headers" || !backend?.header_names.length) return null;
  return `Left empty, these stay: ${backend.header_names.join(", ")}`;
}

function BackendField({
  field: { name, label, input, choices },
  value,
  onChange,
  ...rest
}: {
  field: FieldOf;
  value: string;
  onChange(value: string): void;
  required: boolean;
  placeholder?: string;
  hint: string;
}) {
  if (choices)
    return (
      <SelectField
        label={label}
        hint={rest.hint}
        value={value}
        onChange={onChange}
        choices={["", ...choices].map((choice) => ({ value: choice, label: choice || "as usual" }))}
      />
    );
  if (input === "members")
    return (
      <Field label={label} hint={rest.hint}>
        {(id, describedBy) => (
          <textarea
            id={id}
            aria-describedby={describedBy}
            className="textarea mono"
            rows={2}
            value={value}
            placeholder={rest.placeholder}
            onChange={(event) => onChange(event.target.value)}
          />
        )}
      </Field>
    );
  return (
    <TextField
      {...rest}
      label={label}
      field={name}
      type={input === "password" ? "password" : "text"}
      value={value}
      onChange={onChange}
      maxLength={LENGTH_MAX[name]}
      autoComplete="off"
    />
  );
}

/** What is left to type comes first: with a provider's address that is the key. */
const inOrder = (fields: readonly FieldOf[], address: Address | undefined): readonly FieldOf[] =>
  address?.needs_key
    ? [...fields].sort((one, other) => Number(other.name === "api_key") - Number(one.name === "api_key"))
    : fields;

/** By label; a type that the form does not offer is still what it is. */
const choicesOf = (types: Types["types"], chosen: string) => [
  ...(chosen === "" || types.some(({ type }) => type === chosen) ? [] : [{ value: chosen, label: chosen }]),
  ...types
    .map(({ type, label }) => ({ value: type, label }))
    .sort((one, other) => one.label.localeCompare(other.label)),
];
