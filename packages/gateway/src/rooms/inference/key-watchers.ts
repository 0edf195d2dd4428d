import type { EventHub } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { ERRORS, type ServiceError } from "../../kernel/errors.ts";

const KEYS_MAX = 50_000;

/**
 * Tells whoever follows a key on the channel of its id how its requests go, so that a person who sets up a
 * program sees the first one arrive, or what is wrong with it. Success is told once per process: after that the
 * usage rows say it, and a busy key costs nothing here.
 */
export class KeyWatchers {
  readonly #told = new BoundedMap<string, true>(KEYS_MAX);
  constructor(readonly events: EventHub) {}

  answered(keyId: string): void {
    if (this.#told.get(keyId)) return;
    this.#told.set(keyId, true);
    this.#tell(keyId, { ok: true });
  }

  refused(keyId: string, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    this.#tell(keyId, { ok: false, status, code, message });
  }

  #tell(keyId: string, outcome: Record<string, unknown>): void {
    this.events.push(
      keyId,
      JSON.stringify({ jsonrpc: "2.0", method: "key.request", params: { key_id: keyId, ...outcome } }),
    );
  }
}
