import { type Clock, within } from "../../../kernel/clock.ts";
import { Outage } from "../../../kernel/errors.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import type { ResponseRow, ResponseStore } from "./store.ts";

/** A killed process loses what was queued since the last write. */
const WRITE_EVERY_MS = 100;
const RETRY_AFTER_MS = 2_000;
const QUEUE_CHARS_MAX = 16 * 1024 * 1024;
/** On SQLite a transaction makes all other writers wait. */
const TRANSACTION_ROWS_MAX = 64;

interface WriterOptions {
  store: Pick<ResponseStore, "insert">;
  clock: Clock;
  log: Log;
  /** Called before a continuing turn is inserted, and again with the same row if that fails. */
  joined(row: ResponseRow, previousId: string): Promise<void>;
}

const charsOf = ({ input, output, response }: ResponseRow): number =>
  input.length + output.length + (response?.length ?? 0);

/** Queues rows for the next write. Only a reader of a queued row waits for it. */
export class ResponseWriter {
  readonly #queue: ResponseRow[] = [];
  #queueChars = 0;
  #writing: Promise<boolean> | null = null;
  #isScheduled = false;
  #isClosed = false;

  constructor(readonly options: WriterOptions) {}

  keep(row: ResponseRow): boolean {
    const chars = charsOf(row);
    if (this.#queueChars + chars > QUEUE_CHARS_MAX) return false;
    this.#queue.push(row);
    this.#queueChars += chars;
    this.#schedule(WRITE_EVERY_MS);
    return true;
  }

  /** Waits until the response, if queued here, is written; false if the database does not accept it. */
  async written(userId: string, id: string): Promise<boolean> {
    while (this.#queue.some((row) => row.id === id && row.user_id === userId))
      if (!(await this.flush())) return false;
    return true;
  }

  /** Writes the queue; false if the database does not accept it. */
  flush(): Promise<boolean> {
    this.#writing ??= this.#writeAll().then((isWritten) => {
      this.#writing = null;
      if (this.#queue.length > 0) this.#schedule(isWritten ? WRITE_EVERY_MS : RETRY_AFTER_MS);
      return isWritten;
    });
    return this.#writing;
  }

  /** Writes the queue, if the database accepts it in time. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true;
    const flushAll = async () => {
      while ((await this.flush()) && this.#queue.length > 0);
    };
    await within(this.options.clock, timeoutMs, flushAll());
  }

  #schedule(delayMs: number): void {
    if (this.#isClosed || this.#isScheduled || this.#writing) return;
    this.#isScheduled = true;
    this.options.clock.after(delayMs, () => {
      this.#isScheduled = false;
      void this.flush();
    });
  }

  async #writeAll(): Promise<boolean> {
    for (let left = this.#queue.length; left > 0; ) {
      const rows = this.#queue.slice(0, Math.min(left, TRANSACTION_ROWS_MAX));
      try {
        await this.#write(rows);
      } catch (error) {
        this.options.log.warn("storing responses failed; will retry", { error });
        return false;
      }
      this.#queue.splice(0, rows.length);
      for (const row of rows) this.#queueChars -= charsOf(row);
      left -= rows.length;
      if (left > 0) await nextTurn();
    }
    return true;
  }

  /** A row that cannot be stored, e.g. because its user was deleted, does not block the others. */
  async #write(rows: readonly ResponseRow[]): Promise<void> {
    try {
      for (const row of rows) if (row.previous_id !== null) await this.options.joined(row, row.previous_id);
      await this.options.store.insert(rows);
    } catch (error) {
      if (error instanceof Outage) throw error;
      if (rows.length > 1) for (const row of rows) await this.#write([row]);
      else this.options.log.error("responses could not be stored", { request_id: rows[0]!.id, error });
    }
  }
}
