import { type Clock, sleep, within } from "../../../kernel/clock.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import { RefusedRows, type SettleNews, type Settler } from "../settler.ts";
import type { JournalEntry } from "./codec.ts";
import type { Batch, Journal } from "./journal.ts";

/** Rows that arrive within this time share a transaction. */
export const GATHER_MS = 500;
/** With this many rows the fixed cost of a transaction no longer matters; more would only delay others. */
export const BATCH_ROWS_MAX = 4096;
const BACKOFF_MS = { first: 100, most: 5_000 };
/** How often a single row may be refused for its contents before it is set aside. */
const REFUSALS_MAX = 3;
const ADOPT_EVERY_MS = 60_000;

interface WriterOptions {
  journal: Journal;
  clock: Clock;
  log: Log;
  settler: Settler;
  settled: (news: SettleNews) => void;
  /** These rows were set aside, because the database will never take them. */
  givenUp: (entries: readonly JournalEntry[]) => void;
}

/** Drains the journal into the database, one batch after the other. */
export class JournalWriter {
  #running: Promise<void> | null = null;
  #cancelTimer: (() => void) | null = null;
  #failures = 0;
  #rowsMax = BATCH_ROWS_MAX;
  #refusals = 0;
  #closed = false;
  readonly #endAdopting: () => void;
  #waiting: { target: number; resolve: (done: true) => void }[] = [];
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
    this.#cancelTimer = this.options.clock.after(delayMs, () => this.start());
  }

  /** Drains now instead of after the delay, e.g. what an earlier run left. */
  start(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#running ??= this.#drain().finally(() => {
      this.#running = null;
      this.#resolveWaiting();
      if (this.#closed) return;
      if (this.#failures > 0) {
        const backoffMs = Math.min(BACKOFF_MS.most, BACKOFF_MS.first * 2 ** (this.#failures - 1));
        // Jitter, so that instances that lost the same database do not retry all at once.
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
      // Under load there is always another row; a transaction for a few costs as much as one for many.
      if (batch.segment.own && journal.ownRows < BATCH_ROWS_MAX && this.#waiting.length === 0) return;
    }
  }

  async #settle(batch: Batch): Promise<void> {
    const { journal, settler, settled, log } = this.options;
    const { segment, start, end } = batch;
    const report = await settler.settle({
      file: segment.path,
      start,
      end,
      rowsMax: this.#rowsMax,
      mayExist: !segment.own || this.#failures > 0,
      // The reservations of an earlier run ended with its process.
      reserved: segment.own,
    });
    for (const news of report.news) {
      try {
        settled(news);
      } catch (error) {
        // The rows are in the database, so they must not be settled again.
        log.error("what settled usage has changed could not be applied", { error });
      }
      // Let requests run between two parts.
      await nextTurn();
    }
    journal.advance(batch, report);
    this.#progress();
  }

  #progress(): void {
    if (this.#failures > 0) this.options.log.info("writing usage rows to the database works again");
    this.#failures = 0;
    this.#refusals = 0;
    this.#rowsMax = Math.min(BATCH_ROWS_MAX, this.#rowsMax * 2);
    this.#lastProgressMs = this.options.clock.now();
    this.#resolveWaiting();
  }

  /** Shrinks batches until the refused row is alone and can be set aside, so that it does not hold up others. */
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
    const { drained } = this.options.journal;
    for (const { target, resolve } of this.#waiting) if (drained >= target) resolve(true);
    this.#waiting = this.#waiting.filter(({ target }) => drained < target);
  }

  /** Waits until everything appended so far is in the database; false if that takes longer than `timeoutMs`. */
  async flush(timeoutMs: number): Promise<boolean> {
    const { journal, clock } = this.options;
    if (journal.ownRows === 0) return true;
    const { promise, resolve } = Promise.withResolvers<true>();
    const waiter = { target: journal.drained + journal.ownRows, resolve };
    // After a failure the backoff decides: flushing must not hammer a database that is down.
    if (this.#failures === 0) this.start();
    this.#waiting.push(waiter);
    const done = await within(clock, timeoutMs, promise);
    this.#waiting = this.#waiting.filter((other) => other !== waiter);
    return done === true;
  }

  /** Seconds for which rows have been waiting without progress; 0 when none wait. */
  get stalledSeconds(): number {
    const { journal, clock } = this.options;
    if (journal.backlog.bytes === 0) return 0;
    return Math.max(0, Math.floor((clock.now() - this.#lastProgressMs) / 1000));
  }

  /** Waits for the current run, at most for `timeoutMs`. */
  async caughtUp(timeoutMs: number): Promise<void> {
    if (this.#running) await Promise.race([this.#running, sleep(this.options.clock, timeoutMs)]);
  }

  /** Drains what it can until the deadline; the rest is found by the next start. */
  async close(deadlineMs: number): Promise<void> {
    await this.flush(deadlineMs);
    this.#closed = true;
    this.#endAdopting();
    this.#cancelTimer?.();
    // A running transaction should not find its database closed.
    await this.caughtUp(deadlineMs);
  }
}
