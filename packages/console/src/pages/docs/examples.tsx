import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { latestSecret, rememberSecret } from "../../lib/fresh-keys.ts";
import { invalidate } from "../../lib/query.ts";
import { Button } from "../../ui/controls.tsx";
import { FormError } from "../../ui/states.tsx";

const ORIGIN = /\b(https?|wss?):\/\/(?:127\.0\.0\.1|localhost):8080\b/g;
const KEY = /service-…/g;
const CODE = /^```[\s\S]*?^```/gm;

/** Examples with the address that the reader is at, and a key of theirs where there is one. */
export function personal(text: string, key: string | null): string {
  const isSecure = location.protocol === "https:";
  const here = (_: string, scheme: string) =>
    `${scheme.startsWith("ws") ? "ws" : "http"}${isSecure ? "s" : ""}://${location.host}`;
  const placed = text.replace(ORIGIN, here);
  return key === null ? placed : placed.replace(CODE, (block) => block.replace(KEY, key));
}

export const hasKeyExamples = (text: string): boolean => text.match(KEY) !== null;

/** Whose key the examples have. Only a key that was made in this tab is known: the others cannot be shown again. */
export function useExampleKey() {
  const [key, setKey] = useState(latestSecret);
  return { key, setKey };
}

export function KeyChoice({ chosen, onChoose }: { chosen: string | null; onChoose(key: string): void }) {
  const make = useAction(async () => {
    const made = await api("keys.create", { name: "documentation" });
    rememberSecret(made.id, made.key);
    invalidate("keys");
    onChoose(made.key);
  });
  return (
    <div className="row">
      <p className="muted small">
        {chosen === null
          ? `The examples are for ${location.host}; service-… stands for your key.`
          : `The examples are for ${location.host} and have your key ${chosen.slice(0, 16)}…`}
      </p>
      {chosen === null && (
        <Button small busy={make.busy} onClick={() => void make.run()}>
          Make a key for them
        </Button>
      )}
      <FormError error={make.error} />
    </div>
  );
}
