import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { type Backend, backendsChanged } from "../../lib/backends.ts";
import { useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import { Button, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { FormError, Loaded } from "../../ui/states.tsx";
import type { Address } from "./add-backend.tsx";
import { SetPrice } from "./set-price.tsx";
import { type Tested, TestResult } from "./test-result.tsx";

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

/** What a provider's card fills in; of no provider in particular: nothing. */
interface Preset {
  provider: { id: string; name: string } | null;
  addresses: readonly Address[];
}

const presetValues = ({ provider, addresses }: Preset, index: number): Record<string, string> => ({
  ...(provider && { name: index === 0 ? provider.id : `${provider.id}-${index + 1}` }),
  ...(addresses[index] && { url: addresses[index].url }),
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
  const type = address?.type ?? chosen ?? query.data?.default_type ?? "";
  const known = query.data?.types.find((each) => each.type === type) ?? query.data?.types[0];
  const fields = (known?.fields ?? []).filter(
    ({ name, is_more }) => !is_more && (!backend || name !== "name"),
  );
  const given = { type, ...entered(fields, values) } as { type: string; url?: string };
  const runTest = async () => {
    const result = await api("backends.test", given);
    const prices = result.ok ? await api("billing.prices.list", { models: result.models, type }) : [];
    const found: Tested = { ...result, prices };
    setTested(found);
    return found;
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
      await api("backends.update", { models: [], ...given, name: backend.name });
    } else await api("backends.add", { ...given, seen: found?.seen ?? null });
    backendsChanged();
    toast(
      backend ? "Saved; it is being probed" : "Registered; its models can be called as soon as it answers",
    );
  };
  const fill = (changed: Record<string, string>) => {
    setTested(null);
    setValues(changed);
  };
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
                  choices={choicesOf(types, type)}
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
              {inOrder(fields, address).map(({ name, label, input, required, placeholder, hint }) => (
                <TextField
                  key={name}
                  label={label}
                  field={name}
                  type={input === "password" ? "password" : "text"}
                  value={values[name] ?? ""}
                  onChange={(value) => fill({ ...values, [name]: value })}
                  required={required || (name === "api_key" && Boolean(address?.needs_key))}
                  placeholder={placeholder ?? (name === "name" ? type : undefined)}
                  maxLength={LENGTH_MAX[name]}
                  autoComplete="off"
                  hint={backend?.has_key && name === "api_key" ? "Left empty, the key stays as it is" : hint}
                />
              ))}
              <div>
                <Button icon="play" busy={test.busy} onClick={() => void test.run()}>
                  Test connection
                </Button>
              </div>
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

/** What is left to type comes first: with a provider's address that is the key. */
const inOrder = (fields: readonly Field[], address: Address | undefined): readonly Field[] =>
  address?.needs_key
    ? [...fields].sort((one, other) => Number(other.name === "api_key") - Number(one.name === "api_key"))
    : fields;

/** By label; a type that the form does not offer is still what it is. */
const choicesOf = (types: Types["types"], chosen: string) => [
  ...(types.some(({ type }) => type === chosen) ? [] : [{ value: chosen, label: chosen }]),
  ...types
    .map(({ type, label }) => ({ value: type, label }))
    .sort((one, other) => one.label.localeCompare(other.label)),
];
