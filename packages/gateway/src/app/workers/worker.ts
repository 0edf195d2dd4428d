import type { Config } from "../../config.ts";
import { createLog } from "../../kernel/log.ts";
import { warnOfExposure } from "../exposure.ts";
import { type App, startApp } from "../index.ts";
import { warmUpSoon } from "../warm-up.ts";
import type { FromWorker, ToWorker, WorkerPlace } from "./messages.ts";

/** Time for closing after the drain; then this process exits. */
const CLOSING_MS = 15_000;

/** Runs one of several processes on one port, which drains and exits when the supervisor's pipe closes. */
export async function runWorker(introduce: (app: App, config: Config) => Promise<string>): Promise<void> {
  const worker = new WorkerProcess();
  const { config, place } = await worker.started;
  const log = createLog({ level: config.logLevel, format: config.logFormat }).with({ worker: place.number });
  process.on("unhandledRejection", (error) => log.error("unhandled promise rejection", { error }));
  try {
    const app = await startApp(config, { log, worker: place });
    worker.serving = { app, config };
    worker.send({ ready: { url: app.url, port: app.port, introduction: await introduce(app, config) } });
    if (place.number === 1) warnOfExposure(app, config);
    warmUpSoon(app, config.warmUp);
  } catch (error) {
    const { message, code } = error as Error & { code?: string };
    worker.send({ failed: { message, ...(code !== undefined && { code }) } });
    process.exit(1);
  }
}

class WorkerProcess {
  readonly started: Promise<{ config: Config; place: WorkerPlace }>;
  serving: { app: App; config: Config } | null = null;
  #isStopping = false;
  #allStop = false;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<{ config: Config; place: WorkerPlace }>();
    this.started = promise;
    process.on("message", (message: ToWorker) => {
      if ("start" in message) resolve(message.start);
      else this.#stopWithAll("the service stops");
    });
    process.on("disconnect", () => this.#stopWithAll("the supervisor has ended"));
    // A signal to this worker alone moves its work to the others, and the supervisor restarts it. A terminal or service
    // manager signals all processes at once; then the supervisor's message comes within the grace period.
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => this.#stop(signal));
  }

  send(message: FromWorker): void {
    if (process.connected) process.send?.(message);
  }

  #stopWithAll(reason: string): void {
    this.#allStop = true;
    void this.#stop(reason);
  }

  async #stop(reason: string): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    if (!this.serving) process.exit(1);
    const { app, config } = this.serving;
    app.log.info("draining", { reason });
    setTimeout(() => process.exit(1), config.drainGraceMs + config.drainTimeoutMs + CLOSING_MS).unref();
    await app.drain(() => !this.#allStop);
    process.exit(0);
  }
}
