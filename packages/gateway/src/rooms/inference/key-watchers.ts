import type { EventHub } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { ERRORS, type ServiceError } from "../../kernel/errors.ts";
import { type Principal, prefixOf } from "../keys/index.ts";
import { keyRequest } from "./notifications.ts";

const KEYS_MAX = 50_000;

type KeyHolder = Pick<Principal, "keyId" | "userId">;

/**
 * Reports a key's requests to its owner, on the channel of its id, so that someone who sets up a program sees the
 * first one arrive, or what is wrong with it. Success is reported once per process: after that the usage rows show
 * it, and a busy key costs nothing here.
 */
export class KeyWatchers {
  readonly #notified = new BoundedMap<string, true>(KEYS_MAX);
  constructor(readonly events: EventHub) {}

  answered({ keyId, userId }: KeyHolder): void {
    if (this.#notified.get(keyId)) return;
    this.#notified.set(keyId, true);
    this.events.notifyUser(userId, keyId, keyRequest, { key_id: keyId, ok: true });
  }

  refused({ keyId, userId }: KeyHolder, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    const news = { key_id: keyId, ok: false as const, status, code, message };
    this.events.notifyUser(userId, keyId, keyRequest, news);
  }

  /** An unknown key, reported to the watchers of a key with the same prefix: most are copying mistakes. */
  unknown(secret: string, refusal: { status: number; code: string; message: string }): void {
    const prefix = prefixOf(secret);
    if (prefix !== null)
      this.events.notify(`key-${prefix}`, keyRequest, { key_id: null, ok: false, ...refusal });
  }
}
