import { startThread } from "../../kernel/threads.ts";
import type { Row, SqlValue } from "../contract.ts";

/** Where a built program keeps the thread's code, seen from the program. */
declare const REPORTS_WORKER: string | undefined;

/** A thread that nobody asks is ended: it takes some 15 MB. */
const IDLE_MS = 60_000;

export interface Report {
  id: number;
  path: string;
  sql: string;
  params: readonly SqlValue[];
}
export type Reported = { id: number } & ({ rows: Row[] } | { failed: { message: string; code?: unknown } });

/** Reads in a thread of its own: a query that takes a second would keep everyone waiting in this one. */
export class ReportThread {
  #worker: Worker | null = null;
  #latestId = 0;
  #whenIdle: ReturnType<typeof setTimeout> | undefined;
  readonly #waiting = new Map<number, PromiseWithResolvers<Row[]>>();

  constructor(readonly path: string) {}

  all(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> {
    this.#worker ??= this.#start();
    const id = ++this.#latestId;
    const answer = Promise.withResolvers<Row[]>();
    this.#waiting.set(id, answer);
    clearTimeout(this.#whenIdle);
    this.#worker.postMessage({ id, path: this.path, sql, params } satisfies Report);
    return answer.promise;
  }

  #start(): Worker {
    const path = typeof REPORTS_WORKER === "string" ? REPORTS_WORKER : "./reports-worker.ts";
    const worker = startThread(import.meta.dir, path);
    worker.onmessage = ({ data }: MessageEvent<Reported>) => {
      const answer = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ("rows" in data) answer?.resolve(data.rows);
      else answer?.reject(Object.assign(new Error(data.failed.message), data.failed));
      if (this.#waiting.size === 0) this.#whenIdle = setTimeout(() => this.close(), IDLE_MS).unref();
    };
    worker.onerror = ({ message }) => this.#ended(worker, message);
    worker.addEventListener("close", () => this.#ended(worker, "it ended"));
    return worker;
  }

  /** The next question starts another. */
  #ended(worker: Worker, reason: string): void {
    if (this.#worker !== worker) return;
    this.#worker = null;
    clearTimeout(this.#whenIdle);
    worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(new Error(`the report thread ended: ${reason}`));
    this.#waiting.clear();
  }

  close(): void {
    if (this.#worker) this.#ended(this.#worker, "the database is closed");
  }
}
