import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { plural } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import { navigate } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError } from "../../ui/states.tsx";
import type { GroupView } from "./detail.tsx";

export function GroupSettings({ group, mayIssue }: { group: GroupView; mayIssue: boolean }) {
  const [name, setName] = useState(group.name);
  const [description, setDescription] = useState(group.description);
  const [ceiling, setCeiling] = useState(group.rpm_ceiling === null ? "" : String(group.rpm_ceiling));
  const [refill, setRefill] = useState(String(group.monthly_refill ?? ""));
  const [budget, setBudget] = useState(String(group.member_budget_usd ?? ""));
  const [deleting, setDeleting] = useState(false);
  const save = useAction(async () => {
    await api("group.update", {
      group_id: group.id,
      name,
      description,
      rpm_ceiling: ceiling === "" ? null : Number(ceiling),
      member_budget_usd: budget === "" ? null : Number(budget),
      ...(mayIssue && { monthly_refill: refill === "" ? null : Number(refill) }),
    });
    invalidate("group");
    toast("Saved");
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void save.run();
  };
  return (
    <div className="stack loose narrow">
      <form className="form" onSubmit={submit}>
        <TextField label="Name" value={name} onChange={setName} required maxLength={80} />
        <TextField label="What it is for" value={description} onChange={setDescription} maxLength={500} />
        <TextField
          label="Requests per minute, all keys together"
          type="number"
          min={1}
          step={1}
          value={ceiling}
          onChange={setCeiling}
          placeholder="no limit"
        />
        <TextField
          label="Each member may spend, USD per month"
          type="number"
          min={0}
          step="any"
          value={budget}
          onChange={setBudget}
          placeholder="no limit"
          hint="Of the pool, with all their keys for this group together"
        />
        {mayIssue && (
          <TextField
            label="Monthly refill, points"
            type="number"
            min={1}
            step={1}
            value={refill}
            onChange={setRefill}
            placeholder="no refill"
            hint="The pool is filled up to this now, and when each month begins (UTC)"
          />
        )}
        <FormError error={save.error} />
        <div>
          <Button type="submit" look="primary" busy={save.busy}>
            Save
          </Button>
        </div>
      </form>
      {group.my_role === "owner" && (
        <Section title="Delete the group">
          <div className="stack">
            <p className="muted">
              Its keys become personal keys of their creators, and the rest of the pool returns to the
              platform.
            </p>
            <div>
              <Button look="danger" icon="trash" onClick={() => setDeleting(true)}>
                Delete group
              </Button>
            </div>
          </div>
        </Section>
      )}
      {deleting && (
        <Confirm
          title={`Delete ${group.name}?`}
          consequence={`${plural(group.member_count, "member loses", "members lose")} the pool and its rules now. This cannot be undone.`}
          confirm="Delete the group"
          typed={group.name}
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await api("group.delete", { group_id: group.id });
            invalidate("groups");
            navigate("/groups");
          }}
        />
      )}
    </div>
  );
}
