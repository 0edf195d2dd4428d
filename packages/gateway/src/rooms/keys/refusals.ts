import { ERRORS, type ServiceError } from "../../kernel/errors.ts";
import { inBackground } from "../../kernel/log.ts";
import { insertAll } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";

/** However often a key is refused, the database hears of it once in this time. */
const WRITE_EVERY_MS = 2_000;
/** Keys of which a refusal waits to be written; more are not noted. */
const WAITING_MAX = 10_000;
const MESSAGE_LENGTH_MAX = 500;
/** What a key is refused with for itself; anything else is about the request or the backend. */
const STATUSES: ReadonlySet<number> = new Set([401, 402, 403, 429]);

const NEWEST = `ON CONFLICT (key_id) DO UPDATE SET
  refused_ms = excluded.refused_ms, code = excluded.code, message = excluded.message
  WHERE excluded.refused_ms >= key_refusals.refused_ms`;

export interface Refusal {
  atMs: number;
  code: string;
  message: string;
}

type RefusalOptions = Needs<"db" | "clock" | "log">;

/** Why each key was refused last, for its owner. Written now and then: a key that is refused all day costs little. */
export class KeyRefusals {
  readonly #waiting = new Map<string, Refusal>();
  #cancel: (() => void) | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(readonly options: RefusalOptions) {}

  note(keyId: string, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    if (!STATUSES.has(status)) return;
    if (this.#waiting.size >= WAITING_MAX && !this.#waiting.has(keyId)) return;
    const atMs = this.options.clock.now();
    // A message may name what the client sent, and Postgres rejects NUL in texts.
    const text = message.replaceAll("\u0000", "").trim().slice(0, MESSAGE_LENGTH_MAX);
    this.#waiting.set(keyId, { atMs, code, message: text });
    this.#cancel ??= this.options.clock.after(WRITE_EVERY_MS, () => {
      this.#cancel = null;
      inBackground(this.options.log, "writing why keys were refused", this.write());
    });
  }

  /** Brings what waits into the database, one write after the other. */
  write(): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    if (this.#waiting.size === 0) return;
    const rows = Array.from(this.#waiting, ([key_id, { atMs: refused_ms, code, message }]) => ({
      ...{ key_id, refused_ms, code, message },
    }));
    this.#waiting.clear();
    // In the order of the keys: two instances then lock rows in the same order.
    rows.sort((a, b) => (a.key_id < b.key_id ? -1 : 1));
    await this.options.db.transaction((tx) => insertAll(tx, "key_refusals", rows, NEWEST));
  }

  async close(): Promise<void> {
    this.#cancel?.();
    this.#cancel = null;
    await this.write().catch((error) =>
      this.options.log.warn("writing why keys were refused failed", { error }),
    );
  }
}
