import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { useKnownModels, useUnknownModels } from "../../lib/models.ts";
import { invalidate } from "../../lib/query.ts";
import { Button, Check } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError } from "../../ui/states.tsx";
import type { GroupView } from "./detail.tsx";

export function GroupModels({ group, manages }: { group: GroupView; manages: boolean }) {
  const [asking, setAsking] = useState(false);
  const save = async (on: boolean) => {
    await api("group.update", { group_id: group.id, enforce_model_allowlist: on });
    invalidate("group");
  };
  const enforce = useAction(save);
  const { allowed } = group.models;
  const locksOut = useUnknownModels(allowed).length === allowed.length;
  return (
    <div className="stack loose">
      <div className="stack tight">
        <Check
          label="Only allowed models may be used"
          checked={group.enforce_model_allowlist}
          disabled={enforce.busy || !manages}
          onChange={(on) => (on && locksOut ? setAsking(true) : void enforce.run(on))}
        />
        <p className="muted small">Denied models are refused either way: a denial wins over a permission.</p>
        <FormError error={enforce.error} />
        {asking && (
          <Confirm
            title="Allow nothing?"
            consequence="No model that can be called is on the list of allowed ones: every key of the group is refused from now on."
            confirm="Refuse all models"
            onClose={() => setAsking(false)}
            onConfirm={() => save(true)}
          />
        )}
      </div>
      <div className="two-columns">
        {LISTS.map((list) => (
          <ModelList key={list.id} {...list} group={group} manages={manages} />
        ))}
      </div>
    </div>
  );
}

const LISTS = [
  { id: "allowed", title: "Allowed", method: "group.models.allow" },
  { id: "denied", title: "Denied", method: "group.models.deny" },
] as const;

function ModelList({
  id: list,
  title,
  method,
  group,
  manages,
}: (typeof LISTS)[number] & { group: GroupView; manages: boolean }) {
  const models = group.models[list];
  const [model, setModel] = useState("");
  const known = useKnownModels().data ?? [];
  const unknown = useUnknownModels(models);
  const change = useAction(async (id: string, remove: boolean) => {
    await api(method, { group_id: group.id, model_ids: [id], remove });
    invalidate(`group ${group.id}`);
  });
  const add = async (event: FormEvent) => {
    event.preventDefault();
    if (model.trim() && (await change.run(model.trim(), false))) setModel("");
  };
  const listId = `models-for-${title}`;
  return (
    <Section title={title}>
      <div className="stack">
        {manages && (
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
        )}
        <FormError error={change.error} />
        {models.length === 0 ? (
          <p className="muted">No model is on this list.</p>
        ) : (
          <ul className="lines">
            {models.map((id) => (
              <li key={id}>
                <span>
                  <code>{id}</code>
                  {unknown.includes(id) && <span className="warn small"> no backend lists it</span>}
                </span>
                {manages && (
                  <Button
                    look="quiet"
                    small
                    icon="close"
                    aria-label={`Take ${id} off the list`}
                    onClick={() => void change.run(id, true)}
                  />
                )}
              </li>
            ))}
          </ul>
        )}
      </div>
    </Section>
  );
}
