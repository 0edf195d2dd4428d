import { ERRORS, type ServiceError } from "../../kernel/errors.ts";
import { inBackground } from "../../kernel/log.ts";
import { insertAll } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";

/** Refusals are written at most once in this time. */
const WRITE_EVERY_MS = 2_000;
/** Maximum number of keys with an unwritten refusal; more are not noted. */
const WAITING_MAX = 10_000;
const MESSAGE_LENGTH_MAX = 500;
/** Statuses that concern the key itself, and not the request or the backend. */
const STATUSES: ReadonlySet<number> = new Set([401, 402, 403, 429]);

const NEWEST = `ON CONFLICT (key_id) DO UPDATE SET
  refused_ms = excluded.refused_ms, code = excluded.code, message = excluded.message
  WHERE excluded.refused_ms >= key_refusals.refused_ms`;

interface RefusalRow {
  key_id: string;
  refused_ms: number;
  code: string;
  message: string;
}

/** The last refusal of each key, for its owner. Written in batches, so that constant refusals cost little. */
export class KeyRefusals {
  readonly #waiting = new Map<string, RefusalRow>();
  #cancel: (() => void) | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(readonly options: Needs<"db" | "clock" | "log">) {}

  note(keyId: string, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    if (!STATUSES.has(status)) return;
    if (this.#waiting.size >= WAITING_MAX && !this.#waiting.has(keyId)) return;
    const refused_ms = this.options.clock.now();
    // A message may name what the client sent, and Postgres rejects NUL in texts.
    const text = message.replaceAll("\u0000", "").trim().slice(0, MESSAGE_LENGTH_MAX);
    this.#waiting.set(keyId, { key_id: keyId, refused_ms, code, message: text });
    this.#cancel ??= this.options.clock.after(WRITE_EVERY_MS, () => {
      this.#cancel = null;
      inBackground(this.options.log, "writing why keys were refused", this.write());
    });
  }

  /** Writes the waiting refusals, one write at a time. */
  write(): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    if (this.#waiting.size === 0) return;
    // Sorted by key, so that two instances lock rows in the same order.
    const rows = [...this.#waiting.values()].sort((a, b) => (a.key_id < b.key_id ? -1 : 1));
    this.#waiting.clear();
    await this.options.db.transaction((tx) => insertAll(tx, "key_refusals", rows, NEWEST));
  }

  async close(): Promise<void> {
    this.#cancel?.();
    await this.write().catch((error) =>
      this.options.log.warn("writing why keys were refused failed", { error }),
    );
  }
}
