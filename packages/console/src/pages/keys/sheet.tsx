import { useState } from "react";
import { api } from "../../lib/api.ts";
import { exactTime } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Code } from "../../ui/code.tsx";
import { Button, Copyable, LinkButton, TextField } from "../../ui/controls.tsx";
import { Confirm, Dialog, FormDialog } from "../../ui/dialogs.tsx";
import { Note, Status, When } from "../../ui/states.tsx";
import { CaptureSwitch } from "../requests/captured.tsx";
import {
  budgetShare,
  fieldsOf,
  isExpired,
  type Key,
  LastRefusal,
  LimitFacts,
  LimitsForm,
  limitParams,
} from "./limits.tsx";

const NEARLY_SPENT = 0.9;

export function KeyState({ value }: { value: Key }) {
  if (!value.active)
    return (
      <Status tone="plain" icon="close">
        Revoked <When time={value.revoked_at} />
      </Status>
    );
  if (isExpired(value))
    return (
      <Status tone="bad">
        Expired <When time={value.expires_at} />
      </Status>
    );
  const spent = budgetShare(value);
  if (spent >= 1) return <Status tone="bad">Budget spent</Status>;
  if (spent >= NEARLY_SPENT) return <Status tone="warn">Budget nearly spent</Status>;
  return <Status tone="good">Active</Status>;
}

export const isCaptured = ({ capture_until }: Key): boolean =>
  capture_until !== null && Date.parse(capture_until) > Date.now();

/** `ownerId` is set for an administrator who looks at somebody else's key. */
export function KeySheet({ value, ownerId, onClose }: { value: Key; ownerId?: string; onClose(): void }) {
  const [asking, setAsking] = useState<"revoke" | "edit" | "rotate" | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const close = () => setAsking(null);
  return (
    <Dialog title={value.name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>State</dt>
          <dd>
            <KeyState value={value} />
          </dd>
          <dt>Prefix</dt>
          <dd>
            <code>service-{value.key_prefix}…</code>
          </dd>
          <dt>Project</dt>
          <dd>
            <Link
              href={`/usage?project=${encodeURIComponent(value.project)}${ownerId ? `&whose=all&user=${ownerId}` : ""}`}
            >
              {value.project}
            </Link>
          </dd>
          <LimitFacts value={value} />
          <dt>Created</dt>
          <dd>
            <When time={value.created_at} />
          </dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={value.id} />
          </dd>
        </dl>
        <LastRefusal value={value} />
        {isCaptured(value) && (
          <Note tone="warn">
            An administrator has the prompts and answers of this key captured until{" "}
            <strong>{exactTime(value.capture_until!)}</strong>. Administrators and you can read them on the
            Requests page, for 7 days.
          </Note>
        )}
        <div className="row wrap">
          <LinkButton href={`/usage?key=${value.key_prefix}${ownerId ? "&whose=all" : ""}`} icon="usage">
            Usage
          </LinkButton>
          {value.active && (
            <>
              {!ownerId && (
                <LinkButton href={`/keys/${value.id}/first-call`} icon="play">
                  First call
                </LinkButton>
              )}
              <Button onClick={() => setAsking("edit")}>Edit limits</Button>
              <Button onClick={() => setAsking("rotate")}>Rotate</Button>
              <CaptureSwitch keyId={value.id} name={value.name} isOn={isCaptured(value)} />
              <Button look="danger" icon="trash" onClick={() => setAsking("revoke")}>
                Revoke
              </Button>
            </>
          )}
        </div>
      </div>
      {asking === "edit" && <EditKey value={value} ownerId={ownerId} onClose={close} />}
      {asking === "rotate" && (
        <Confirm
          title={`Rotate ${value.name}?`}
          consequence="The key gets another secret. Programs that use the old one will be refused immediately; name, limits and usage stay."
          confirm="Rotate now"
          onClose={close}
          onConfirm={async () => {
            const { key } = await api(ownerId ? "users.keys.rotate" : "keys.rotate", { key_id: value.id });
            setSecret(key);
            invalidate("keys");
          }}
        />
      )}
      {secret && (
        <Dialog title="The new secret" closing="when copied" onClose={() => setSecret(null)}>
          <div className="stack">
            <Code label="Key" text={secret} />
            <Note tone="warn">Copy it now: only a hash is stored.</Note>
          </div>
        </Dialog>
      )}
      {asking === "revoke" && (
        <Confirm
          title={`Revoke ${value.name}?`}
          consequence="Programs that use this key will be refused immediately. This cannot be undone."
          confirm="Revoke now"
          onClose={close}
          onConfirm={async () => {
            await api(ownerId ? "users.keys.revoke" : "keys.revoke", { key_id: value.id });
            invalidate("keys");
            toast(`${value.name} no longer works`);
          }}
        />
      )}
    </Dialog>
  );
}

function EditKey({ value, ownerId, onClose }: { value: Key; ownerId?: string; onClose(): void }) {
  const [name, setName] = useState(value.name);
  const [fields, setFields] = useState(() => fieldsOf(value));
  const save = async () => {
    const { expires_at, ...limits } = limitParams(fields);
    // The field shows minutes: a time that was not touched must not lose its seconds, or be refused as past.
    const isSameTime = fields.expires === fieldsOf(value).expires;
    await api(ownerId ? "users.keys.update" : "keys.update", {
      key_id: value.id,
      name,
      ...limits,
      ...(!isSameTime && { expires_at }),
    });
    invalidate("keys");
    toast(`The limits of ${name} hold from now on`);
  };
  return (
    <FormDialog title={`Edit ${value.name}`} submit="Save" onSubmit={save} onClose={onClose}>
      <TextField label="Name" value={name} onChange={setName} required maxLength={80} />
      <LimitsForm fields={fields} onChange={setFields} />
    </FormDialog>
  );
}
