import { systemClock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { startThread } from "../../kernel/threads.ts";
import {
  RefusedRows,
  type SettleNews,
  type SettleOrder,
  type SettleReport,
  type Settler,
} from "../../rooms/metering/index.ts";
import type { Database } from "../../storage/contract.ts";
import type { Request, SettlingAnswer, ThreadOptions } from "./messages.ts";

const TICK_MS = 1_000;
/** A thread that has not answered for this many ticks is given up. They stand still while this process does. */
const SILENT_TICKS_MAX = 30;
const CLOSE_MS = 5_000;

export interface SettlingThreadOptions extends ThreadOptions {
  /** Whose writes take turns with those of the thread. */
  db: Database;
  log: Log;
  /** Tests replace these. */
  startWorker?: () => Worker;
  silentTicksMax?: number;
}

/** Where a built program keeps the thread's code, seen from the program. */
declare const SETTLING_WORKER: string | undefined;

const startWorker = (): Worker =>
  startThread(import.meta.dir, typeof SETTLING_WORKER === "string" ? SETTLING_WORKER : "./worker.ts");

interface PendingOrder {
  resolve(answer: SettlingAnswer): void;
  reject(error: Error): void;
  ticks: number;
}

function* parsed(news: readonly string[]): Generator<SettleNews> {
  for (const part of news) yield JSON.parse(part) as SettleNews;
}

/** Settles in a thread of its own, restarted when it dies or hangs; an order it did not answer stays in the journal. */
export class SettlingThread implements Settler {
  #worker: Worker | null = null;
  #waiting: PendingOrder | null = null;
  #closed = false;
  readonly #endTicks: () => void;

  constructor(readonly options: SettlingThreadOptions) {
    this.#endTicks = systemClock.every(TICK_MS, () => this.#tick());
  }

  settle(order: SettleOrder): Promise<SettleReport> {
    return this.options.db.lendWrites(async () => {
      if (this.#closed) throw new Error("the settling thread is closed");
      const answer = await this.#ask({ order });
      if ("report" in answer) return { ...answer.report, news: parsed(answer.report.news) };
      if ("refused" in answer) throw new RefusedRows(answer.refused.message, answer.refused.rows);
      const { message, stack } = "failed" in answer ? answer.failed : { message: "closed", stack: undefined };
      throw Object.assign(new Error(message), stack !== undefined && { stack });
    });
  }

  #ask(request: Request): Promise<SettlingAnswer> {
    if (this.#waiting) throw new Error("the settling thread takes one order at a time");
    const worker = this.#started();
    return new Promise<SettlingAnswer>((resolve, reject) => {
      this.#waiting = { resolve, reject, ticks: 0 };
      worker.postMessage(request);
    });
  }

  #started(): Worker {
    if (this.#worker) return this.#worker;
    const worker = (this.options.startWorker ?? startWorker)();
    worker.onmessage = ({ data }: MessageEvent<SettlingAnswer>) => {
      if (this.#worker !== worker) return;
      const waiting = this.#waiting;
      this.#waiting = null;
      waiting?.resolve(data);
    };
    worker.onerror = ({ message }) => this.#ended(worker, message);
    worker.addEventListener("close", () => this.#ended(worker, "it ended"));
    const { storage, pointsPerUsd } = this.options;
    worker.postMessage({ open: { storage, pointsPerUsd } } satisfies Request);
    this.#worker = worker;
    return worker;
  }

  /** The worker is of no more use; the next order starts another. */
  #ended(worker: Worker, reason: string): void {
    if (this.#worker !== worker) return;
    this.options.log.error("the settling thread ended; usage stays in the journal until another one runs", {
      reason,
    });
    this.#giveUp(worker, reason);
  }

  /** Ending it rolls back what it is in the middle of. */
  #giveUp(worker: Worker, reason: string): void {
    this.#worker = null;
    worker.terminate();
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(new Error(`the settling thread ended: ${reason}`));
  }

  #tick(): void {
    const { silentTicksMax = SILENT_TICKS_MAX } = this.options;
    if (!this.#waiting || !this.#worker || ++this.#waiting.ticks <= silentTicksMax) return;
    this.#ended(this.#worker, `no answer for ${silentTicksMax} s`);
  }

  /** Lets the thread close its connections. An order that it still works on stays in the journal. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#endTicks();
    const worker = this.#worker;
    if (!worker) return;
    if (!this.#waiting) await Promise.race([this.#ask({ close: true }), Bun.sleep(CLOSE_MS)]).catch(() => {});
    if (this.#worker === worker) this.#giveUp(worker, "the service stops");
  }
}
