import { systemClock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { startThread, ThreadCalls } from "../../kernel/threads.ts";
import {
  RefusedRows,
  type SettleNews,
  type SettleOrder,
  type SettleReport,
  type Settler,
} from "../../rooms/metering/index.ts";
import type { Database } from "../../storage/contract.ts";
import type { SettlerOptions, SettlingAnswer, SettlingAsk } from "./worker.ts";

const TICK_MS = 1_000;
/** A thread that has not answered for this many ticks is terminated. Ticks do not count while this process stands still. */
const SILENT_TICKS_MAX = 30;
const CLOSE_MS = 5_000;

interface SettlingThreadOptions extends SettlerOptions {
  db: Database;
  log: Log;
  /** Tests replace these. */
  startWorker?: () => Worker;
  silentTicksMax?: number;
}

/** Where a compiled program has the thread's code. */
declare const SETTLING_WORKER: string | undefined;

const startWorker = (): Worker =>
  startThread(import.meta.dir, typeof SETTLING_WORKER === "string" ? SETTLING_WORKER : "./worker.ts");

function* parsed(news: readonly string[]): Generator<SettleNews> {
  for (const part of news) yield JSON.parse(part) as SettleNews;
}

/** Settles in a separate thread, restarted when it dies or hangs; an unanswered order stays in the journal. */
export class SettlingThread implements Settler {
  readonly #thread: ThreadCalls<SettlingAsk, SettlingAnswer>;
  readonly #endTicks: () => void;
  #silentTicks = 0;
  #isClosed = false;

  constructor(readonly options: SettlingThreadOptions) {
    this.#thread = new ThreadCalls("the settling thread", options.startWorker ?? startWorker, (reason) => {
      if (this.#isClosed) return;
      const message = "the settling thread ended; usage stays in the journal until another one runs";
      options.log.error(message, { reason });
    });
    this.#endTicks = systemClock.every(TICK_MS, () => this.#tick());
  }

  settle(order: SettleOrder): Promise<SettleReport> {
    const { db, storage, pointsPerUsd } = this.options;
    return db.lendWrites(async () => {
      if (this.#isClosed) throw new Error("the settling thread is closed");
      if (this.#thread.pendingCount > 0) throw new Error("the settling thread takes one order at a time");
      this.#silentTicks = 0;
      const answer = await this.#thread.call({ order, storage, pointsPerUsd });
      if ("report" in answer) return { ...answer.report, news: parsed(answer.report.news) };
      throw new RefusedRows(answer.refused.message, answer.refused.rows);
    });
  }

  #tick(): void {
    const { silentTicksMax = SILENT_TICKS_MAX } = this.options;
    if (this.#thread.pendingCount > 0 && ++this.#silentTicks > silentTicksMax)
      this.#thread.end(`no answer for ${silentTicksMax} s`);
  }

  /** Lets the thread close its connections, unless it is busy: that order is rolled back and stays in the journal. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endTicks();
    if (this.#thread.isRunning && this.#thread.pendingCount === 0)
      await Promise.race([this.#thread.call("close"), Bun.sleep(CLOSE_MS)]).catch(() => {});
    this.#thread.end("the service stops");
  }
}
