import { useState } from "react";
import { api } from "../../lib/api.ts";
import { rememberSecret } from "../../lib/fresh-keys.ts";
import { invalidate } from "../../lib/query.ts";
import { TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { PoolField } from "../../ui/pool-field.tsx";
import { LimitsForm, limitParams, NO_LIMITS } from "./limits.tsx";

export function CreateKey({ onClose, onCreated }: { onClose(): void; onCreated(key: { id: string }): void }) {
  const [name, setName] = useState("");
  const [project, setProject] = useState("");
  const [groupId, setGroupId] = useState("");
  const [limits, setLimits] = useState(NO_LIMITS);
  const create = async () => {
    const key = await api("keys.create", {
      name,
      ...(project && { project }),
      ...(groupId && { group_id: groupId }),
      ...limitParams(limits),
    });
    rememberSecret(key.id, key.key);
    invalidate("keys");
    onCreated(key);
  };
  return (
    <FormDialog title="Create a key" submit="Create key" onSubmit={create} onClose={onClose}>
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        required
        maxLength={80}
        placeholder="laptop, ci, chat-bot"
        hint="The program that will use it"
      />
      <TextField
        label="Project"
        value={project}
        onChange={setProject}
        maxLength={64}
        placeholder="default"
        hint="Usage can be looked at by project"
      />
      <PoolField label="Who pays" own="You" value={groupId} onChange={setGroupId} />
      <details className="folded">
        <summary>Limits (optional)</summary>
        <div className="form">
          <LimitsForm fields={limits} onChange={setLimits} />
        </div>
      </details>
    </FormDialog>
  );
}
