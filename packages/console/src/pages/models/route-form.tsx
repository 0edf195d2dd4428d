import { useId, useState } from "react";
import { api } from "../../lib/api.ts";
import { invalidate } from "../../lib/query.ts";
import type { ModelRoute } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import { Button, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";

const TARGETS_MAX = 16;

/** A target as it is typed. */
interface Typed {
  id: number;
  model: string;
  backend: string;
  order: string;
  weight: string;
}

const empty = (id: number): Typed => ({ id, model: "", backend: "", order: "1", weight: "1" });

const typed = ({ targets }: ModelRoute): Typed[] =>
  targets.map(({ model, backend, order, weight }, id) => ({
    id,
    model,
    backend: backend ?? "",
    order: String(order),
    weight: String(weight),
  }));

/** Adds a model route, or changes the given one. */
export function RouteForm({
  route,
  taken,
  models,
  backends,
  onClose,
}: {
  route: ModelRoute | null;
  taken: readonly string[];
  models: readonly string[];
  backends: readonly string[];
  onClose(): void;
}) {
  const [name, setName] = useState(route?.name ?? "");
  const [seconds, setSeconds] = useState(String(route?.begin_within_seconds ?? ""));
  const [targets, setTargets] = useState<Typed[]>(route ? typed(route) : [empty(0)]);
  const known = useId();
  const change = (id: number, part: Partial<Typed>) =>
    setTargets(targets.map((target) => (target.id === id ? { ...target, ...part } : target)));
  const save = async () => {
    if (!route && taken.includes(name.trim()))
      throw new Told("A model route of this name exists already", "Choose another name, or edit that one.");
    await api("routes.set", {
      name,
      targets: targets.map(({ model, backend, order, weight }) => ({
        model,
        backend: backend || null,
        order: Number(order),
        weight: Number(weight),
      })),
      begin_within_seconds: seconds.trim() === "" ? null : Number(seconds),
    });
    invalidate("routes");
    invalidate("models");
    toast(`${name.trim()} is saved; it is in force at once`);
  };
  return (
    <FormDialog
      title={route ? `Edit ${route.name}` : "Add a model route"}
      kind="modal wide"
      submit="Save"
      onSubmit={save}
      onClose={onClose}
    >
      {!route && (
        <TextField
          label="Name that programs send"
          field="name"
          value={name}
          onChange={setName}
          required
          maxLength={256}
          placeholder="fast"
        />
      )}
      <datalist id={known}>
        {models.map((model) => (
          <option key={model} value={model} />
        ))}
      </datalist>
      {targets.map((target, index) => (
        <fieldset key={target.id} className="target-fields" aria-label={`Target ${index + 1}`}>
          <TextField
            label="Model"
            field={`targets.${index}.model`}
            list={known}
            value={target.model}
            onChange={(model) => change(target.id, { model })}
            required
            maxLength={256}
          />
          <SelectField
            label="Backend"
            value={target.backend}
            onChange={(backend) => change(target.id, { backend })}
            choices={[
              { value: "", label: "any" },
              ...(target.backend && !backends.includes(target.backend) ? [target.backend] : []).map(choice),
              ...backends.map(choice),
            ]}
          />
          <TextField
            label="Order"
            field={`targets.${index}.order`}
            type="number"
            min={1}
            max={100}
            required
            value={target.order}
            onChange={(order) => change(target.id, { order })}
          />
          <TextField
            label="Weight"
            field={`targets.${index}.weight`}
            type="number"
            min={1}
            max={1000}
            required
            value={target.weight}
            onChange={(weight) => change(target.id, { weight })}
          />
          <Button
            look="quiet"
            icon="close"
            aria-label={`Remove target ${index + 1}`}
            disabled={targets.length === 1}
            onClick={() => setTargets(targets.filter(({ id }) => id !== target.id))}
          />
        </fieldset>
      ))}
      <div>
        <Button
          icon="plus"
          small
          disabled={targets.length >= TARGETS_MAX}
          onClick={() => setTargets([...targets, empty(Math.max(...targets.map(({ id }) => id)) + 1)])}
        >
          Add target
        </Button>
      </div>
      <TextField
        label="Try the next target after (seconds)"
        field="begin_within_seconds"
        type="number"
        min={0.1}
        max={600}
        step="any"
        value={seconds}
        onChange={setSeconds}
        hint="Empty: only when a target fails"
      />
    </FormDialog>
  );
}

const choice = (name: string) => ({ value: name, label: name });
