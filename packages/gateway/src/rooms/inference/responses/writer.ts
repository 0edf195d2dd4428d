import type { Clock } from "../../../kernel/clock.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import type { ResponseRow, ResponseStore } from "./store.ts";

/** How long answers wait for the database. While a transaction takes longer, nothing is stored. */
export const WAIT_MS_MAX = 2_000;
/** Turns that wait to be stored. */
const WAITING_CHARS_MAX = 16 * 1024 * 1024;
/** Answers wait so long for others to be stored with, once several arrive at a time. */
const GATHER_MS = 5;
/** Of one transaction: with SQLite other requests wait for it. */
const BATCH_ROWS_MAX = 64;
const BATCH_CHARS_MAX = 1024 * 1024;

interface Waiting {
  row: ResponseRow;
  resolve(isStored: boolean): void;
}

/** Stores turns whose answers arrive together in one transaction. */
export class ResponseWriter {
  readonly #waiting: Waiting[] = [];
  #waitingChars = 0;
  #isWriting = false;
  #isStuck = false;
  /** Several turns were stored together the last time. */
  #isBusy = false;

  constructor(readonly options: { store: ResponseStore; clock: Clock; log: Log }) {}

  /** Whether the turn was stored. */
  write(row: ResponseRow): Promise<boolean> {
    if (this.#isStuck || this.#waitingChars + row.messages.length > WAITING_CHARS_MAX)
      return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.push({ row, resolve });
    this.#waitingChars += row.messages.length;
    if (!this.#isWriting) void this.#writeAll();
    return promise;
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      await (this.#isBusy ? Bun.sleep(GATHER_MS) : nextTurn());
      const batch = this.#take();
      this.#isBusy = batch.length > 1;
      await this.#insertInTime(batch);
    }
    this.#isWriting = false;
  }

  async #insertInTime(batch: readonly Waiting[]): Promise<void> {
    const cancel = this.options.clock.after(WAIT_MS_MAX, () => this.#giveUp(batch));
    await this.#insert(batch);
    cancel();
    this.#isStuck = false;
  }

  #take(): Waiting[] {
    let count = 0;
    let chars = 0;
    while (count < this.#waiting.length && count < BATCH_ROWS_MAX && chars < BATCH_CHARS_MAX)
      chars += this.#waiting[count++]!.row.messages.length;
    this.#waitingChars -= chars;
    return this.#waiting.splice(0, count);
  }

  /** What is being written may still be stored; nobody waits for it any longer. */
  #giveUp(batch: readonly Waiting[]): void {
    this.#isStuck = true;
    for (const { resolve } of batch) resolve(false);
    for (const { resolve } of this.#waiting.splice(0)) resolve(false);
    this.#waitingChars = 0;
  }

  /** One row that cannot be stored, because its user was deleted for example, does not keep the others out. */
  async #insert(batch: readonly Waiting[]): Promise<void> {
    try {
      await this.options.store.insert(batch.map(({ row }) => row));
      for (const { resolve } of batch) resolve(true);
    } catch (error) {
      if (batch.length > 1) for (const each of batch) await this.#insert([each]);
      else
        for (const { row, resolve } of batch) {
          this.options.log.error("a response could not be stored", { request_id: row.id, error });
          resolve(false);
        }
    }
  }
}
