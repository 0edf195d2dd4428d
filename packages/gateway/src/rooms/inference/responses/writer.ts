import type { Clock } from "../../../kernel/clock.ts";
import { Outage } from "../../../kernel/errors.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import { type KeptTurn, type ResponseRow, rowsOf } from "./rows.ts";
import type { ResponseStore } from "./store.ts";

/** A process that is killed loses what it was given since the last time. */
const WRITE_EVERY_MS = 100;
const RETRY_AFTER_MS = 2_000;
/** Turns that wait to be stored. */
const WAITING_CHARS_MAX = 16 * 1024 * 1024;
const BATCH_TURNS_MAX = 1_000;
const BATCH_CHARS_MAX = 1024 * 1024;
/** Of one transaction: with SQLite all else waits for it. */
const TRANSACTION_ROWS_MAX = 64;

interface WriterOptions {
  store: Pick<ResponseStore, "insert">;
  clock: Clock;
  log: Log;
  /** Called before a turn that goes on from another is inserted; again with the same row if that fails. */
  joined(row: ResponseRow, previousId: string): Promise<void>;
}

/** Keeps turns until the next write: nobody waits for it, except who wants to read one of them. */
export class ResponseWriter {
  readonly #waiting: KeptTurn[] = [];
  #waitingChars = 0;
  /** Being written, or to be tried again: its turns, and the rows that are left of them. */
  #batch: { rows: ResponseRow[]; turns: readonly KeptTurn[] } | null = null;
  #writing: Promise<boolean> | null = null;
  #isScheduled = false;
  #isClosed = false;

  constructor(readonly options: WriterOptions) {}

  /** False: too much waits already. */
  keep(turn: KeptTurn): boolean {
    const { length } = turn.json;
    if (this.#waitingChars + length > WAITING_CHARS_MAX) return false;
    this.#waiting.push(turn);
    this.#waitingChars += length;
    if (!this.#isScheduled && !this.#writing) this.#schedule(WRITE_EVERY_MS);
    return true;
  }

  /** Resolves when the user's turn, if it waits here, is written; false when it cannot be for now. */
  async written(userId: string, turnId: string): Promise<boolean> {
    // Who asks for another user's waits no longer than for none at all.
    const isIt = (turn: KeptTurn) => turn.id === turnId && turn.userId === userId;
    while (this.#waiting.some(isIt) || this.#batch?.turns.some(isIt)) if (!(await this.flush())) return false;
    return true;
  }

  /** Writes what waits now; false when the database does not take it. */
  flush(): Promise<boolean> {
    this.#writing ??= this.#writeAll().then((isWritten) => {
      this.#writing = null;
      const isDone = isWritten && this.#waiting.length === 0;
      if (!isDone && !this.#isScheduled) this.#schedule(isWritten ? WRITE_EVERY_MS : RETRY_AFTER_MS);
      return isWritten;
    });
    return this.#writing;
  }

  /** Writes what waits, if the database takes it in time. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true;
    let cancel = () => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.options.clock.after(timeoutMs, resolve);
    });
    await Promise.race([this.#flushAll(), late]);
    cancel();
  }

  /** A write that is under way leaves what came after its beginning. */
  async #flushAll(): Promise<void> {
    while ((await this.flush()) && this.#waiting.length > 0);
  }

  #schedule(delayMs: number): void {
    if (this.#isClosed) return;
    this.#isScheduled = true;
    this.options.clock.after(delayMs, () => {
      this.#isScheduled = false;
      void this.flush();
    });
  }

  /** What comes meanwhile is left for the next time: a few turns cost almost as much as many. */
  async #writeAll(): Promise<boolean> {
    let asked = this.#waiting.length;
    while (this.#batch || asked > 0) {
      if (!this.#batch) {
        const turns = this.#take(asked);
        asked -= turns.length;
        this.#batch = { rows: rowsOf(turns, this.options.clock.now()), turns };
      }
      const { rows } = this.#batch;
      try {
        while (rows.length > 0) {
          await this.#write(rows.slice(0, TRANSACTION_ROWS_MAX));
          rows.splice(0, TRANSACTION_ROWS_MAX);
          // Streams go first.
          if (rows.length > 0) await nextTurn();
        }
      } catch (error) {
        this.options.log.warn("storing responses failed; will retry", { error });
        return false;
      }
      for (const { json } of this.#batch.turns) this.#waitingChars -= json.length;
      this.#batch = null;
      if (asked > 0) await nextTurn();
    }
    return true;
  }

  #take(turnsMax: number): KeptTurn[] {
    let count = 0;
    let chars = 0;
    while (count < turnsMax && count < BATCH_TURNS_MAX && chars < BATCH_CHARS_MAX)
      chars += this.#waiting[count++]!.json.length;
    return this.#waiting.splice(0, count);
  }

  /** One row that cannot be stored, because its user was deleted for example, does not keep the others out. */
  async #write(rows: readonly ResponseRow[]): Promise<void> {
    try {
      for (const row of rows) {
        if (row.previous_id === null) continue;
        await this.options.joined(row, row.previous_id);
        await nextTurn();
      }
      await this.options.store.insert(rows);
    } catch (error) {
      if (error instanceof Outage) throw error;
      if (rows.length > 1) for (const row of rows) await this.#write([row]);
      else this.options.log.error("responses could not be stored", { request_id: rows[0]!.id, error });
    }
  }
}
