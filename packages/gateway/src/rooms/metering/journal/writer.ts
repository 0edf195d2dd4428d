import { type Clock, sleep } from "../../../kernel/clock.ts";
import type { Log } from "../../../kernel/log.ts";
import type { Batch, Journal } from "./journal.ts";

const BATCH_ROWS_MAX = 256;
/** Rows that come within this time share a transaction, unless they are enough for one sooner. */
const DRAIN_DELAY_MS = 250;
const BACKOFF_MS = { first: 100, most: 5_000 };
/** How often a single row may be refused for its contents before it is set aside. */
const REFUSALS_MAX = 3;
const ADOPT_EVERY_MS = 60_000;

/** Whether the database refused what the rows say, and would refuse it again: not an outage. */
function refusesContents(error: unknown): boolean {
  const { code, errno } = (error ?? {}) as { code?: unknown; errno?: unknown };
  // SQLSTATE classes: data exception, integrity constraint violation.
  if (typeof errno === "string" && /^2[23]/.test(errno)) return true;
  return typeof code === "string" && /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code);
}

interface WriterOptions {
  journal: Journal;
  clock: Clock;
  log: Log;
  /** Brings the rows into the database in one transaction; rows that are there already change nothing. */
  apply: (batch: Batch, options: { mayExist: boolean }) => Promise<void>;
  /** These rows were set aside: the database will never take them. */
  givenUp: (batch: Batch) => void;
}

/** Drains the journal into the database: one batch after the other, and again until it succeeds. */
export class JournalWriter {
  #running: Promise<void> | null = null;
  #cancelTimer: (() => void) | null = null;
  /** The timer runs out at the end of this turn of the event loop. */
  #isDue = false;
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

  /** Something was appended. */
  wake(): void {
    if (this.#running || this.#isDue || this.#closed) return;
    const { clock, journal } = this.options;
    if (!this.#cancelTimer) {
      this.#lastProgressMs = clock.now();
      this.#schedule(DRAIN_DELAY_MS);
    } else if (this.#failures === 0 && journal.ownRows >= BATCH_ROWS_MAX) {
      this.#cancelTimer();
      this.#isDue = true;
      // Not at once: the request whose row this is ends first.
      this.#schedule(0);
    }
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
    this.#isDue = false;
    this.#running = this.#drain().finally(() => {
      this.#running = null;
      this.#resolveWaiting();
      if (this.#closed) return;
      if (this.#failures > 0) {
        const backoffMs = Math.min(BACKOFF_MS.most, BACKOFF_MS.first * 2 ** (this.#failures - 1));
        // Instances that lost the same database should not retry all at once.
        this.#schedule(backoffMs * (0.5 + Math.random() / 2));
      } else if (this.options.journal.backlogBytes > 0) this.#schedule(DRAIN_DELAY_MS);
    });
  }

  async #drain(): Promise<void> {
    const { journal, clock, log, apply } = this.options;
    while (!this.#closed) {
      const batch = journal.next(this.#rowsMax);
      if (!batch) {
        this.#lastProgressMs = clock.now();
        return;
      }
      try {
        const mayExist = !batch.segment.own || this.#failures > 0;
        if (batch.entries.length > 0) await apply(batch, { mayExist });
        journal.advance(batch);
        this.#progress();
      } catch (error) {
        const { rows, bytes } = journal.backlog;
        if (++this.#failures === 1)
          log.warn("writing usage rows to the database failed; they stay in the journal", {
            error,
            rows,
            bytes,
          });
        if (refusesContents(error)) this.#narrow(batch);
        return;
      }
      if (this.#maySoonTakeMore(batch)) return;
      // Between batches everyone else has a turn: a long backlog must not hold up requests.
      await new Promise((resolve) => setImmediate(resolve));
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
  #narrow(batch: Batch): void {
    if (batch.entries.length > 1) {
      this.#rowsMax = Math.ceil(batch.entries.length / 8);
      return;
    }
    if (++this.#refusals < REFUSALS_MAX) return;
    this.options.journal.setAside(batch);
    this.options.givenUp(batch);
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
