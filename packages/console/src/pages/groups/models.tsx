import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { useKnownModels } from "../../lib/models.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Button, Check } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError, Loaded } from "../../ui/states.tsx";
import type { GroupView } from "./detail.tsx";

export function GroupModels({ group }: { group: GroupView }) {
  const lists = useQuery(`group ${group.id} models`, () => api("group.models.list", { group_id: group.id }));
  const enforce = useAction(async (on: boolean) => {
    await api("group.update", { group_id: group.id, enforce_model_allowlist: on });
    invalidate("group");
  });
  return (
    <div className="stack loose">
      <div className="stack tight">
        <Check
          label="Only allowed models may be used"
          checked={group.enforce_model_allowlist}
          disabled={enforce.busy}
          onChange={(on) => void enforce.run(on)}
        />
        <p className="muted small">Denied models are refused either way: a denial wins over a permission.</p>
        <FormError error={enforce.error} />
      </div>
      <Loaded query={lists}>
        {({ allowed, denied }) => (
          <div className="two-columns">
            <ModelList title="Allowed" method="group.models.allow" groupId={group.id} models={allowed} />
            <ModelList title="Denied" method="group.models.deny" groupId={group.id} models={denied} />
          </div>
        )}
      </Loaded>
    </div>
  );
}

function ModelList({
  title,
  method,
  groupId,
  models,
}: {
  title: string;
  method: "group.models.allow" | "group.models.deny";
  groupId: string;
  models: readonly string[];
}) {
  const [model, setModel] = useState("");
  const known = useKnownModels().data ?? [];
  const change = useAction(async (id: string, remove: boolean) => {
    await api(method, { group_id: groupId, model_ids: [id], remove });
    invalidate(`group ${groupId} models`);
  });
  const add = async (event: FormEvent) => {
    event.preventDefault();
    if (model.trim() && (await change.run(model.trim(), false))) setModel("");
  };
  const listId = `models-for-${title}`;
  return (
    <Section title={title}>
      <div className="stack">
        <form className="row" onSubmit={add}>
          <input
            className="input"
            aria-label={`Model to add to ${title}`}
            placeholder="model id"
            list={listId}
            value={model}
            onChange={(event) => setModel(event.target.value)}
          />
          <datalist id={listId}>
            {known.map(({ id }) => (
              <option key={id} value={id} />
            ))}
          </datalist>
          <Button type="submit" icon="plus" busy={change.busy}>
            Add
          </Button>
        </form>
        <FormError error={change.error} />
        {models.length === 0 ? (
          <p className="muted">No model is on this list.</p>
        ) : (
          <ul className="lines">
            {models.map((id) => (
              <li key={id}>
                <code>{id}</code>
                <Button
                  look="quiet"
                  small
                  icon="close"
                  aria-label={`Take ${id} off the list`}
                  onClick={() => void change.run(id, true)}
                />
              </li>
            ))}
          </ul>
        )}
      </div>
    </Section>
  );
}
