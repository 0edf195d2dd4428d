import { type Clock, sleep } from "../../../kernel/clock.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import { RefusedRows, type SettleNews, type Settler } from "../settler.ts";
import type { JournalEntry } from "./codec.ts";
import type { Batch, Journal } from "./journal.ts";

/** Rows that come within this time share a transaction. */
export const GATHER_MS = 500;
/** With this many rows a transaction costs next to nothing a row; more would only keep others waiting. */
export const BATCH_ROWS_MAX = 4096;
const BACKOFF_MS = { first: 100, most: 5_000 };
/** How often a single row may be refused for its contents before it is set aside. */
const REFUSALS_MAX = 3;
const ADOPT_EVERY_MS = 60_000;

interface WriterOptions {
  journal: Journal;
  clock: Clock;
  log: Log;
  /** Brings the rows into the database in one transaction; rows that are there already change nothing. */
  settler: Settler;
  settled: (news: SettleNews) => void;
  /** These rows were set aside: the database will never take them. */
  givenUp: (entries: readonly JournalEntry[]) => void;
}

export class JournalWriter {
  #running: Promise<void> | null = null;
  #cancelTimer: (() => void) | null = null;
  #failures = 0;
  #rowsMax = BATCH_ROWS_MAX;
  #refusals = 0;
  #closed = false;
  readonly #endAdopting: () => void;
  #waiting: { target: number; resolve: () => void }[] = [];
  /** When the journal was last seen empty, or a batch was last written. */
  #lastProgressMs: number;

  constructor(readonly options: WriterOptions) {
    const { clock, journal } = options;
    this.#lastProgressMs = clock.now();
    this.#endAdopting = clock.every(ADOPT_EVERY_MS, () => {
      journal.retryRefused();
      journal.adopt();
      this.wake();
    });
  }

  wake(): void {
    if (this.#running || this.#cancelTimer || this.#closed) return;
    this.#lastProgressMs = this.options.clock.now();
    this.#schedule(GATHER_MS);
  }

  #schedule(delayMs: number): void {
    this.#cancelTimer = this.options.clock.after(delayMs, () => {
      this.#cancelTimer = null;
      this.#start();
    });
  }

  #start(): void {
    if (this.#running) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#running = this.#drain().finally(() => {
      this.#running = null;
      this.#resolveWaiting();
      if (this.#closed) return;
      if (this.#failures > 0) {
        const backoffMs = Math.min(BACKOFF_MS.most, BACKOFF_MS.first * 2 ** (this.#failures - 1));
        // Instances that lost the same database should not retry all at once.
        this.#schedule(backoffMs * (0.5 + Math.random() / 2));
      } else if (this.options.journal.hasBacklog) this.#schedule(GATHER_MS);
    });
  }

  async #drain(): Promise<void> {
    const { journal, clock, log } = this.options;
    while (!this.#closed) {
      const batch = journal.next();
      if (!batch) {
        this.#lastProgressMs = clock.now();
        return;
      }
      try {
        await this.#settle(batch);
      } catch (error) {
        const { rows, bytes } = journal.backlog;
        if (++this.#failures === 1)
          log.warn("writing usage rows to the database failed; they stay in the journal", {
            error,
            rows,
            bytes,
          });
        if (error instanceof RefusedRows) this.#narrow(batch, error.rows);
        return;
      }
      if (this.#maySoonTakeMore(batch)) return;
    }
  }

  async #settle(batch: Batch): Promise<void> {
    const { journal, settler } = this.options;
    const { segment, start, end } = batch;
    const report = await settler.settle({
      file: segment.path,
      start,
      end,
      rowsMax: this.#rowsMax,
      mayExist: !segment.own || this.#failures > 0,
      // Rows of an earlier run were reserved by that process, and its reservations died with it.
      reserved: segment.own,
    });
    for (const news of report.news) {
      this.#tell(news);
      // Requests have a turn between two parts.
      await nextTurn();
    }
    journal.advance(batch, report);
    this.#progress();
  }

  /** The rows are in the database, whatever comes of this: it must not look as if they had to be settled again. */
  #tell(news: SettleNews): void {
    try {
      this.options.settled(news);
    } catch (error) {
      this.options.log.error("what settled usage has changed could not be applied", { error });
    }
  }

  /** Under load there is always a next row; a transaction for a few of them would cost as much as for many. */
  #maySoonTakeMore({ segment }: Batch): boolean {
    return segment.own && this.options.journal.ownRows < BATCH_ROWS_MAX && this.#waiting.length === 0;
  }

  #progress(): void {
    if (this.#failures > 0) this.options.log.info("writing usage rows to the database works again");
    this.#failures = 0;
    this.#refusals = 0;
    this.#rowsMax = Math.min(BATCH_ROWS_MAX, this.#rowsMax * 2);
    this.#lastProgressMs = this.options.clock.now();
    this.#resolveWaiting();
  }

  /** Smaller batches until the refused row stands alone, so that it cannot hold back the others. */
  #narrow(batch: Batch, rows: number): void {
    if (rows > 1) {
      this.#rowsMax = Math.ceil(rows / 8);
      return;
    }
    if (++this.#refusals < REFUSALS_MAX) return;
    const entries = this.options.journal.setAsideFirst(batch);
    if (batch.segment.own) this.options.givenUp(entries);
    this.#progress();
  }

  #resolveWaiting(): void {
    if (this.#waiting.length === 0) return;
    const { drained } = this.options.journal;
    this.#waiting = this.#waiting.filter(({ target, resolve }) => {
      if (drained < target) return true;
      resolve();
      return false;
    });
  }

  /** Waits until everything appended so far is in the database, at most for `timeoutMs`; true when it is. */
  async flush(timeoutMs: number): Promise<boolean> {
    const { journal, clock } = this.options;
    if (journal.ownRows === 0) return true;
    const target = journal.drained + journal.ownRows;
    // After a failure the backoff decides; asking must not hammer a database that is down.
    if (this.#failures === 0) this.#start();
    let cancel = () => {};
    const settled = new Promise<boolean>((resolve) => {
      const waiter = { target, resolve: () => resolve(true) };
      this.#waiting.push(waiter);
      cancel = clock.after(timeoutMs, () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        resolve(false);
      });
    });
    const done = await settled;
    cancel();
    return done;
  }

  /** Seconds for which rows have been waiting without progress; 0 when none wait. */
  get stalledSeconds(): number {
    const { journal, clock } = this.options;
    if (journal.backlogBytes === 0) return 0;
    return Math.max(0, Math.floor((clock.now() - this.#lastProgressMs) / 1000));
  }

  /** Starts at once, e.g. with what an earlier run left. */
  start(): void {
    this.#start();
  }

  /** Waits until what an earlier run left is in the database, or could not be written, at most for `timeoutMs`. */
  async caughtUp(timeoutMs: number): Promise<void> {
    if (this.#running) await Promise.race([this.#running, sleep(this.options.clock, timeoutMs)]);
  }

  /** Drains what it can until the deadline; the rest is found by the next start. */
  async close(deadlineMs: number): Promise<void> {
    await this.flush(deadlineMs);
    this.#closed = true;
    this.#endAdopting();
    this.#cancelTimer?.();
    // A transaction that is under way should not find its database closed.
    if (this.#running) await Promise.race([this.#running, sleep(this.options.clock, deadlineMs)]);
  }
}
