import type { Config } from "../../config.ts";
import { createLog } from "../../kernel/log.ts";
import { warnOfExposure } from "../exposure.ts";
import { type App, startApp } from "../index.ts";
import { warmUpSoon } from "../warm-up.ts";
import type { FromWorker, ToWorker, WorkerPlace } from "./messages.ts";

/** What closing takes beyond the time that streams have; then this process ends all the same. */
const CLOSING_MS = 15_000;

/** One of several processes on one port. When the supervisor's pipe closes, it finishes what it has begun and ends. */
export async function runWorker(introduce: (app: App, config: Config) => Promise<string>): Promise<void> {
  const worker = new WorkerProcess();
  const { config, place } = await worker.started;
  const log = createLog({ level: config.logLevel, format: config.logFormat }).with({ worker: place.number });
  process.on("unhandledRejection", (error) => log.error("unhandled promise rejection", { error }));
  try {
    const app = await startApp(config, { log, worker: place });
    worker.serves(app, config);
    worker.tell({ ready: { url: app.url, port: app.port, introduction: await introduce(app, config) } });
    if (place.number === 1) warnOfExposure(app, config);
    warmUpSoon(app, config.warmUp);
  } catch (error) {
    const { message, code } = error as Error & { code?: string };
    worker.tell({ failed: { message, ...(code !== undefined && { code }) } });
    process.exit(1);
  }
}

class WorkerProcess {
  readonly started: Promise<{ config: Config; place: WorkerPlace }>;
  #serving: { app: App; config: Config } | null = null;
  #isStopping = false;
  /** Every worker stops. */
  #isWhole = false;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<{ config: Config; place: WorkerPlace }>();
    this.started = promise;
    process.on("message", (message: ToWorker) => {
      if ("start" in message) resolve(message.start);
      else {
        this.#isWhole = true;
        this.#stop("the service stops");
      }
    });
    process.on("disconnect", () => {
      this.#isWhole = true;
      this.#stop("the supervisor has ended");
    });
    // Sent to this worker alone, it moves to the others what it can, and the supervisor starts another in its place. A
    // terminal or a service manager signals every process at once; then the supervisor's word comes within the grace.
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => this.#stop(signal));
  }

  tell(message: FromWorker): void {
    if (process.connected) process.send?.(message);
  }

  serves(app: App, config: Config): void {
    this.#serving = { app, config };
  }

  async #stop(reason: string): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    if (!this.#serving) process.exit(1);
    const { app, config } = this.#serving;
    app.log.info("draining", { reason });
    setTimeout(() => process.exit(1), config.drainGraceMs + config.drainTimeoutMs + CLOSING_MS).unref();
    await app.drain(() => !this.#isWhole);
    process.exit(0);
  }
}
