import type { EventHub } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { ERRORS, type ServiceError } from "../../kernel/errors.ts";
import { prefixOf } from "../keys/index.ts";
import { keyRequest } from "./notifications.ts";

const KEYS_MAX = 50_000;

/**
 * Reports a key's requests on the channel of its id, so that someone who sets up a
 * program sees the first one arrive, or what is wrong with it. Success is reported once per process: after that the
 * usage rows show it, and a busy key costs nothing here.
 */
export class KeyWatchers {
  readonly #told = new BoundedMap<string, true>(KEYS_MAX);
  constructor(readonly events: EventHub) {}

  answered(keyId: string): void {
    if (this.#told.get(keyId)) return;
    this.#told.set(keyId, true);
    this.events.notify(keyId, keyRequest, { key_id: keyId, ok: true });
  }

  refused(keyId: string, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    this.events.notify(keyId, keyRequest, { key_id: keyId, ok: false, status, code, message });
  }

  /** An unknown key, reported to the watchers of a key with the same prefix: most are copying mistakes. */
  unknown(secret: string, refusal: { status: number; code: string; message: string }): void {
    const prefix = prefixOf(secret);
    if (prefix !== null)
      this.events.notify(`key-${prefix}`, keyRequest, { key_id: null, ok: false, ...refusal });
  }
}
