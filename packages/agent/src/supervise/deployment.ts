/** One model on this node, from its first byte of weights until all of it is gone. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Estimate, MESSAGE_CHARS_MAX } from "@model-gateway/protocol/agent.ts";
import { urlHost } from "@model-gateway/protocol/host.ts";
import type { AgentConfig } from "../config.ts";
import { type EnginePlan, type Launch, renderLaunch } from "../engines/plan.ts";
import { describeError } from "../errors.ts";
import { safeFolderName } from "../folder-name.ts";
import type { GpuMonitor } from "../gpu.ts";
import { readTail } from "../guard/engine-log.ts";
import { markedProcesses } from "../guard/processes.ts";
import type { Log } from "../log.ts";
import { secretsIn, withoutSecrets } from "../secrets.ts";
import { abortableDelay, backoffMs } from "../time.ts";
import type { EngineTarget } from "../tunnel-server.ts";
import type { WeightsStore } from "../weights/store.ts";
import { runAfterStart } from "./after-start.ts";
import { describeExit, type EngineExit, EngineProcess, inheritedEnv, lastLineOf } from "./engine-process.ts";
import { waitUntilHealthy, watchHealth } from "./health.ts";
import { DOWNLOADED_PERCENT, DownloadMeter, type Progress, ProgressReporter } from "./progress.ts";

const RESTART_DELAY_MAX_MS = 30_000;
/** An engine that served this long has recovered: its past crashes no longer count. */
const STABLE_AFTER_MS = 120_000;
/** Before its first answer a model most likely fails for a reason that repeats, so it gets one more try only. */
const FIRST_START_RETRIES = 1;
/** What of an engine's output is kept with the reason why its model failed. */
const LAST_LINES = { lines: 12, chars: 1_500 };
/** Of the log that is shown, before secrets are taken out. */
const LOG_BYTES = 96 * 1024;

export interface DeploymentContext {
  config: AgentConfig;
  dataDir: string;
  bind: string;
  nodeId: string;
  weights: WeightsStore;
  gpus: GpuMonitor;
  log: Log;
  /** What nobody may read in what engines write. */
  secrets: readonly string[];
  /** What the model will take of the GPUs; null where nobody can tell. */
  estimate: (plan: EnginePlan, signal: AbortSignal) => Promise<Estimate | null>;
  /** Reserves a port until it is given back. */
  takePort: (preferred: number | null) => Promise<number>;
  returnPort: (port: number) => void;
}

export interface DeploymentOptions {
  modelId: string;
  /** Throws where the node's configuration has no way to serve the model. */
  plan: () => EnginePlan;
  /** Why it failed before this program was started; it is not tried again. */
  failed: string | null;
  context: DeploymentContext;
  /** An earlier deployment of the same model, which has to be gone first. */
  after: Promise<void>;
  apiKey: string;
  estimate: Estimate | null;
  preferredPort: number | null;
  /** True for a model that this node served before it was restarted. */
  provenBefore: boolean;
  onProgress: (progress: Progress) => void;
}

export class Deployment {
  readonly modelId: string;
  /** Settles once all of this deployment is gone from the machine. Never rejects. */
  readonly finished: Promise<void>;
  readonly #options: DeploymentOptions;
  readonly #stop = new AbortController();
  readonly #reporter: ProgressReporter;
  /** What it is expected to take; null until that is known, or where nobody can tell. */
  estimate: Estimate | null;
  #plan: EnginePlan | null = null;
  /** The last of what its engine wrote when it ended. */
  #lastWords = "";
  #marker = "";
  #port: number | null;
  #everReady: boolean;
  #restarts = 0;

  constructor(options: DeploymentOptions) {
    this.#options = options;
    this.modelId = options.modelId;
    this.estimate = options.estimate;
    this.#port = options.preferredPort;
    this.#everReady = options.provenBefore;
    this.#reporter = new ProgressReporter(options.onProgress);
    this.finished = this.#run();
  }

  get apiKey(): string | null {
    return this.#plan?.usesApiKey ? this.#options.apiKey : null;
  }

  get engineName(): string {
    return this.#plan?.engineName ?? "";
  }

  get progress(): Progress {
    return this.#reporter.current;
  }

  /** Whether it is still wanted: neither failed nor told to stop. */
  get live(): boolean {
    return !this.#stop.signal.aborted && this.progress.status !== "failed";
  }

  get stopping(): boolean {
    return this.#stop.signal.aborted;
  }

  get port(): number | null {
    return this.#port;
  }

  get ready(): boolean {
    return this.progress.status === "ready" && this.live;
  }

  get target(): EngineTarget | null {
    return this.ready ? { baseUrl: this.#baseUrl(), apiKey: this.apiKey } : null;
  }

  /** What its processes hold of the GPUs; undefined where the driver tells of none of them. */
  memoryMb(byProcess: ReadonlyMap<number, number>): number | undefined {
    if (byProcess.size === 0 || this.#marker === "") return undefined;
    const held = markedProcesses(this.#marker).flatMap((pid) => byProcess.get(pid) ?? []);
    return held.length === 0 ? undefined : held.reduce((sum, each) => sum + each, 0);
  }

  stop(): Promise<void> {
    this.#stop.abort(new Error("stopped"));
    return this.finished;
  }

  /** The last lines that its engine wrote, without secrets. */
  log(lines: number): string {
    return this.#shown(readTail(this.#logFile(), { lines, bytesMax: LOG_BYTES }));
  }

  #shown(text: string): string {
    const { apiKey, context } = this.#options;
    const own = this.#plan ? secretsIn({ ...this.#plan.template.env, ...this.#plan.entry.env }) : [];
    return withoutSecrets(text, [apiKey, ...context.secrets, ...own]);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const { log } = this.#options.context;
    const model = this.modelId;
    // Also lets the owner finish constructing: reports begin when it already knows this deployment.
    await this.#options.after;
    try {
      signal.throwIfAborted();
      if (this.#options.failed) throw new Error(this.#options.failed);
      const plan = this.#options.plan();
      this.#plan = plan;
      this.#reporter.set({ status: "queued", progress: 0 });
      const modelPath = await this.#obtainWeights(plan);
      this.estimate = await this.#options.context.estimate(plan, signal);
      for (;;) {
        const why = await this.#serve(plan, modelPath);
        signal.throwIfAborted();
        await this.#pauseBeforeRestart(why);
      }
    } catch (error) {
      if (signal.aborted) {
        this.#reporter.set({ status: "stopped", progress: this.progress.progress });
        log.info("model stopped", { model });
      } else {
        const why = this.#shown(describeError(error)).slice(0, MESSAGE_CHARS_MAX - LAST_LINES.chars - 1);
        const last = this.#shown(this.#lastWords).split("\n").slice(-LAST_LINES.lines).join("\n");
        const message = `${why}\n${last.slice(-LAST_LINES.chars)}`.trim();
        this.#reporter.set({ status: "failed", progress: this.progress.progress, message });
        log.error("model failed", { model, why });
      }
    }
  }

  async #obtainWeights(plan: EnginePlan): Promise<string> {
    const { context } = this.#options;
    const { path } = plan.entry;
    if (path && !existsSync(path)) throw new Error(`path: there is nothing at ${path} on this node`);
    if (!plan.source) return path ?? "";
    const meter = new DownloadMeter();
    return context.weights.obtain(plan.source, {
      signal: this.#stop.signal,
      onProgress: (progress) => this.#reporter.update(meter.describe(progress)),
    });
  }

  /** Runs the engine once, until all its processes have ended. Returns why it ended. */
  async #serve(plan: EnginePlan, modelPath: string): Promise<string> {
    const { context } = this.#options;
    const stopGraceMs = plan.template.stop_grace_s * 1000;
    const port = await context.takePort(this.#port);
    this.#port = port;
    const over = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, over.signal]);
    let engine: EngineProcess | null = null;
    try {
      this.#loading("starting the engine");
      const launch = await this.#prepareLaunch(plan, modelPath, port);
      engine = this.#launch(launch);
      const ended = engine.exited.then((exit) => {
        over.abort(new Error("the engine ended"));
        return exit;
      });
      const trouble = await this.#untilTrouble(plan, launch, signal).catch((error: unknown) =>
        describeError(error),
      );
      const endedByItself = over.signal.aborted;
      const exit = await (endedByItself ? ended : engine.stop(stopGraceMs));
      this.#lastWords = exit.tail;
      if (endedByItself) return describeEnd(exit);
      const lastLine = lastLineOf(exit.tail);
      return lastLine ? `${trouble}; it last wrote: ${lastLine}` : trouble;
    } finally {
      over.abort();
      await engine?.stop(stopGraceMs);
      context.returnPort(port);
    }
  }

  async #prepareLaunch(plan: EnginePlan, modelPath: string, port: number): Promise<Launch> {
    const { context, apiKey } = this.#options;
    return renderLaunch(plan, {
      model_id: this.modelId,
      model_path: modelPath,
      port: String(port),
      bind: context.bind,
      api_key: apiKey,
      data_dir: context.dataDir,
      gpus: await context.gpus.read(),
      estimate: this.estimate,
    });
  }

  #launch({ command, env }: Launch): EngineProcess {
    const { dataDir, nodeId, log } = this.#options.context;
    this.#marker = `${nodeId}/${crypto.randomUUID()}`;
    log.info("starting engine", { model: this.modelId, engine: this.engineName, port: this.#port });
    return new EngineProcess({
      command,
      env: { ...inheritedEnv(), ...env },
      cwd: dataDir,
      logFile: this.#logFile(),
      marker: this.#marker,
    });
  }

  /** Waits for the engine to answer, declares the model ready, and watches it. Returns what is wrong with it. */
  async #untilTrouble(plan: EnginePlan, launch: Launch, signal: AbortSignal): Promise<string> {
    const { context } = this.#options;
    const url = `${this.#baseUrl()}${plan.template.health_path}`;
    const startedAtMs = Date.now();
    await waitUntilHealthy({
      url,
      timeoutMs: plan.readyTimeoutMs,
      signal,
      onWaiting: (waitedMs, why) => {
        if (waitedMs >= 1000) this.#loading(`loading for ${Math.round(waitedMs / 1000)} s (${why})`);
      },
    });
    for (const command of launch.afterStart)
      await runAfterStart({
        command,
        env: { ...inheritedEnv(), ...launch.env },
        timeoutMs: plan.readyTimeoutMs - (Date.now() - startedAtMs),
        signal,
        onRunning: (line) => this.#loading(`${command.slice(0, 2).join(" ")}: ${line}`),
      });
    const readyAtMs = Date.now();
    this.#everReady = true;
    context.log.info("model ready", { model: this.modelId, port: this.#port });
    this.#reporter.set({ status: "ready", progress: 100 });
    try {
      return `health check failed: ${await watchHealth(url, signal)}`;
    } finally {
      if (Date.now() - readyAtMs >= STABLE_AFTER_MS) this.#restarts = 0;
    }
  }

  async #pauseBeforeRestart(why: string): Promise<void> {
    const { config, log } = this.#options.context;
    const restartsMax = this.#everReady
      ? config.restarts_max
      : Math.min(FIRST_START_RETRIES, config.restarts_max);
    if (this.#restarts >= restartsMax)
      throw new Error(
        `the engine ended (${why}), after ${this.#restarts} restarts; its log is ${this.#logFile()}`,
      );
    this.#restarts++;
    const initialMs = config.restart_delay_s * 1000;
    const delayMs = backoffMs(this.#restarts, { initialMs, maxMs: RESTART_DELAY_MAX_MS });
    const message = `the engine ended (${why}); restart ${this.#restarts} of ${restartsMax} in ${delayMs / 1000} s`;
    log.warn(message, { model: this.modelId });
    this.#reporter.set({ status: "loading", progress: DOWNLOADED_PERCENT, message });
    await abortableDelay(delayMs, this.#stop.signal);
  }

  #loading(message: string): void {
    this.#reporter.update({ status: "loading", progress: DOWNLOADED_PERCENT, message });
  }

  #logFile(): string {
    return join(this.#options.context.dataDir, "logs", `${safeFolderName(this.modelId)}.log`);
  }

  /** Where this machine itself reaches the engine. */
  #baseUrl(): string {
    const { bind } = this.#options.context;
    const host = bind === "0.0.0.0" ? "127.0.0.1" : bind === "::" ? "::1" : bind;
    return `http://${urlHost(host)}:${this.#port}`;
  }
}

/** Why the engine ended. Throws where another try would not change anything. */
function describeEnd(exit: EngineExit): string {
  if (exit.failure) throw new Error(exit.failure);
  return describeExit(exit);
}
