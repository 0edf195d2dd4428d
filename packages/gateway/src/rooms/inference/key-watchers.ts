import type { EventHub } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { ERRORS, type ServiceError } from "../../kernel/errors.ts";
import { type Principal, prefixOf } from "../keys/index.ts";
import { keyRequest } from "./notifications.ts";

const KEYS_MAX = 50_000;

type KeyHolder = Pick<Principal, "keyId" | "userId">;

/**
 * Tells the owner of a key, who follows it on the channel of its id, how its requests go, so that a person who sets up a
 * program sees the first one arrive, or what is wrong with it. Success is told once per process: after that the
 * usage rows say it, and a busy key costs nothing here.
 */
export class KeyWatchers {
  readonly #told = new BoundedMap<string, true>(KEYS_MAX);
  constructor(readonly events: EventHub) {}

  answered({ keyId, userId }: KeyHolder): void {
    if (this.#told.get(keyId)) return;
    this.#told.set(keyId, true);
    this.events.notifyUser(userId, keyId, keyRequest, { key_id: keyId, ok: true });
  }

  refused({ keyId, userId }: KeyHolder, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    const news = { key_id: keyId, ok: false as const, status, code, message };
    this.events.notifyUser(userId, keyId, keyRequest, news);
  }

  /** A key that nobody has, told to whoever set up one that begins like it: most are miscopied. */
  unknown(secret: string, refusal: { status: number; code: string; message: string }): void {
    const prefix = prefixOf(secret);
    if (prefix !== null)
      this.events.notify(`key-${prefix}`, keyRequest, { key_id: null, ok: false, ...refusal });
  }
}
