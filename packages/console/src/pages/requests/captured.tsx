import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { plural } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { navigate } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { toast } from "../../lib/toast.ts";
import { Button, Check, LinkButton, SelectField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { messagesOf, replay, textOf } from "../playground/replay.ts";

export type FullRecord = Result<"requests.get">;

/** The prompt and the answer, where they were captured. */
export function CapturedText({ record: { captured } }: { record: FullRecord }) {
  if (!captured) return <p className="muted small">The prompt and the answer were not captured.</p>;
  const { asked, answered } = captured;
  const calls = answered?.tool_calls;
  return (
    <section className="stack tight" aria-label="Prompt and answer">
      {asked.cut === true && <p className="muted small">Long: the oldest messages and long texts are cut.</p>}
      {messagesOf(asked).map(({ role, text }, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: what was captured does not change
        <Said key={i} by={role} text={text} />
      ))}
      {answered ? (
        <Said
          by="answer"
          text={textOf(answered.content) || (calls ? JSON.stringify(calls, null, 2) : "nothing")}
        />
      ) : (
        <p className="muted small">There was no answer.</p>
      )}
    </section>
  );
}

function Said({ by, text }: { by: string; text: string }) {
  return (
    <div className="stack none">
      <span className="muted small">{by}</span>
      <p className="captured">{text}</p>
    </div>
  );
}

/** Opens the playground with what was asked, where that is known, and otherwise with the model alone. */
export function Replay({ record, model }: { record: FullRecord; model: string }) {
  const href = `/playground?model=${encodeURIComponent(model)}`;
  const asked = record.captured?.asked;
  if (!asked || asked.input !== undefined || messagesOf(asked).length === 0)
    return (
      <LinkButton href={href} icon="playground">
        Try it in the playground
      </LinkButton>
    );
  return (
    <Button
      icon="playground"
      onClick={() => {
        replay(model, asked);
        navigate(href);
      }}
    >
      Replay in the playground
    </Button>
  );
}

/** The keys whose prompts are captured; asked for by administrators only. */
export function useCaptured() {
  const isAdmin = Boolean(useStore(session)?.user.is_admin);
  return useQuery(isAdmin ? "captures" : null, () => api("keys.capture.list")).data;
}

/** The switch beside one of its requests. */
export function KeyCapture({ keyId, name }: { keyId: string; name: string }) {
  const captured = useCaptured();
  if (!captured) return null;
  return (
    <div>
      <CaptureSwitch keyId={keyId} name={name} isOn={captured.some(({ key_id }) => key_id === keyId)} />
    </div>
  );
}

const DAYS = [1, 3, 7, 30] as const;

/** For administrators: has the prompts of a key captured, or stops that. */
export function CaptureSwitch({ keyId, name, isOn }: { keyId: string; name: string; isOn: boolean }) {
  const isAdmin = Boolean(useStore(session)?.user.is_admin);
  const [asking, setAsking] = useState(false);
  const [days, setDays] = useState("1");
  const [forget, setForget] = useState(true);
  if (!isAdmin) return null;
  const save = async () => {
    await api(
      "keys.capture.set",
      isOn ? { key_id: keyId, days: null, forget } : { key_id: keyId, days: Number(days) },
    );
    for (const key of ["keys", "captures", "request "]) invalidate(key);
    toast(isOn ? `Prompts of ${name} are no longer captured` : `Prompts of ${name} are captured from now on`);
  };
  return (
    <>
      <Button onClick={() => setAsking(true)}>
        {isOn ? "Stop capturing prompts" : "Capture prompts of this key"}
      </Button>
      {asking && (
        <FormDialog
          title={isOn ? `Stop capturing prompts of ${name}?` : `Capture prompts of ${name}?`}
          submit={isOn ? "Stop" : "Capture"}
          onSubmit={save}
          onClose={() => setAsking(false)}
        >
          {isOn ? (
            <Check label="Delete what was captured" checked={forget} onChange={setForget} />
          ) : (
            <>
              <p>
                Prompts and answers of its chats, up to 64 KB each, can then be read by administrators and by
                the key's owner, who is told so. They are deleted after 7 days. The audit log records this.
              </p>
              <SelectField
                label="For"
                value={days}
                onChange={setDays}
                choices={DAYS.map((each) => ({ value: String(each), label: plural(each, "day") }))}
              />
            </>
          )}
        </FormDialog>
      )}
    </>
  );
}
