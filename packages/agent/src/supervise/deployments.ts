/** All models of this node: deploys, stops, restores what it served before, and reports their state. */

import {
  type DeployParams,
  type Estimate,
  type EstimateParams,
  type EstimateResult,
  type LogParams,
  MODELS_MAX,
  type PendingModel,
  type ProgressParams,
  type ServingModel,
  type ServingOptions,
  type StopParams,
} from "@model-gateway/protocol/agent.ts";
import { type EnginePlan, planModel } from "../engines/plan.ts";
import { findFreePort } from "../engines/ports.ts";
import { describeError } from "../errors.ts";
import { estimateOf, roomMb, shapeOfConfig, shapeOfGguf } from "../fit/estimate.ts";
import { killAll, markedProcesses } from "../guard/processes.ts";
import type { EngineTarget } from "../tunnel-server.ts";
import { inspectPath } from "../weights/store.ts";
import { Deployment, type DeploymentContext } from "./deployment.ts";
import type { Progress } from "./progress.ts";
import type { SavedDeployment, StateFile } from "./state-file.ts";

/** No answer takes longer; the gateway ends those that do. */
const LEAVING_MS_MAX = 3_600_000;
const LEAVING_POLL_MS = 100;
const ESTIMATE_TIMEOUT_MS = 8_000;
const CONFIG_BYTES_MAX = 1024 * 1024;
/** What describes the architecture stands before the tokenizer's words. */
const GGUF_HEAD_BYTES = 256 * 1024;
/** Streams that follow one deployment; the oldest is dropped. */
const STREAMS_MAX = 16;

interface Entry {
  deployment: Deployment;
  options: ServingOptions;
  /** It ends as soon as its requests have, unless it is deployed again before. */
  isLeaving: boolean;
  apiKey: string;
  streamIds: string[];
}

export interface DeploymentsOptions {
  context: Omit<DeploymentContext, "takePort" | "returnPort" | "nodeId" | "estimate">;
  state: StateFile;
  /** Host that goes with the port of a ready model; null where it is reached through the tunnel. */
  advertisedHost: string | null;
  onProgress: (progress: ProgressParams) => void;
  /** Requests of a model that are under way through the tunnel. */
  openStreamsOf: (modelId: string) => number;
}

export class Deployments {
  readonly #options: DeploymentsOptions;
  readonly #context: DeploymentContext;
  readonly #entries = new Map<string, Entry>();
  readonly #ports = new Set<number>();
  /** Of models that may be deployed next. */
  readonly #estimates = new Map<string, Estimate>();
  #shuttingDown = false;

  constructor(options: DeploymentsOptions) {
    this.#options = options;
    const { bind, config } = options.context;
    this.#context = {
      ...options.context,
      nodeId: options.state.nodeId,
      estimate: (plan, stop) =>
        this.#estimateOf(plan, AbortSignal.any([stop, AbortSignal.timeout(ESTIMATE_TIMEOUT_MS)])).catch(
          () => null,
        ),
      takePort: async (preferred) => {
        const port = await findFreePort({
          host: bind,
          preferred: preferred ?? undefined,
          range: config.ports,
          taken: this.#ports,
        });
        this.#ports.add(port);
        return port;
      },
      returnPort: (port) => this.#ports.delete(port),
    };
  }

  /** Ends what an earlier run of this node left behind, then brings back what it served. */
  async restore(): Promise<void> {
    const { state } = this.#options;
    const { log } = this.#context;
    const left = markedProcesses(`${state.nodeId}/`);
    if (left.length > 0) {
      log.warn("ending engine processes that an earlier run left behind", { count: left.length });
      const stuck = await killAll(() => markedProcesses(`${state.nodeId}/`));
      if (stuck.length > 0) log.error("some engine processes could not be killed", { pids: stuck.join(" ") });
    }
    for (const saved of state.deployments) {
      log.info("restoring model", { model: saved.model_id });
      this.#begin(saved.model_id, saved);
    }
  }

  deploy({ model_id, stream_id, ...options }: DeployParams): void {
    const current = this.#entries.get(model_id);
    if (current?.deployment.live) {
      current.isLeaving = false;
      this.#follow(current, stream_id);
      this.#tell(current, current.deployment.progress, [stream_id]);
      this.#save();
      return;
    }
    if (!current) this.#makeRoom();
    this.#begin(model_id, {
      model_id,
      stream_ids: [stream_id],
      options,
      port: null,
      failed: null,
      api_key: crypto.randomUUID().replaceAll("-", ""),
    });
  }

  /** What a model would take here, and what it could have: what others are about to take is not free. */
  async estimate({ model_id, ...options }: EstimateParams): Promise<EstimateResult> {
    const plan = planModel(model_id, this.#context.config, options);
    const signal = AbortSignal.timeout(ESTIMATE_TIMEOUT_MS);
    const asked = this.#estimateOf(plan, signal).then(
      (estimate) => ({ estimate }),
      (error: unknown) => ({ estimate: null, why: describeError(error).slice(0, 500) }),
    );
    const [found, gpus] = await Promise.all([asked, this.#context.gpus.read()]);
    if (this.#estimates.size >= MODELS_MAX) this.#estimates.clear();
    if (found.estimate) this.#estimates.set(model_id, found.estimate);
    const coming = [...this.#entries.values()].filter(
      ({ deployment }) => deployment.live && !deployment.ready && deployment.modelId !== model_id,
    );
    const takenMb = coming.reduce((sum, { deployment }) => sum + (deployment.estimate?.total_mb ?? 0), 0);
    const room = roomMb(gpus, plan.entry);
    return { ...found, room_mb: room && Math.max(0, room - takenMb) };
  }

  async #estimateOf({ source, entry, template }: EnginePlan, signal: AbortSignal): Promise<Estimate | null> {
    if (!source && !entry.path) return null;
    const { weights } = this.#context;
    const files = source ? await weights.inspect(source, signal) : await inspectPath(entry.path!);
    const config = files.find(({ name }) => name === "config.json");
    const gguf = files.find(({ name }) => name.endsWith(".gguf"));
    const weightsBytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const shape =
      gguf && (template.weights === "gguf" || !config)
        ? shapeOfGguf(await gguf.head(GGUF_HEAD_BYTES))
        : config
          ? shapeOfConfig(JSON.parse(new TextDecoder().decode(await config.head(CONFIG_BYTES_MAX))))
          : null;
    return estimateOf({ weightsBytes, shape }, entry);
  }

  log({ model_id, lines }: LogParams): { text: string } {
    const entry = this.#entries.get(model_id);
    if (!entry) throw new Error(`${model_id} is not deployed on this node`);
    return { text: entry.deployment.log(lines) };
  }

  /** Stops a model; one that is not here is already stopped. */
  async stop({ model_id: modelId, gently = false }: StopParams): Promise<void> {
    const entry = this.#entries.get(modelId);
    if (!entry) return;
    if (gently && !(await this.#isLeft(entry))) return;
    const gone = entry.deployment.stop();
    // At once: a model whose engine is still ending when this program ends must not come back.
    this.#save();
    await gone;
    if (this.#entries.get(modelId) === entry) this.#entries.delete(modelId);
  }

  /** Waits for the requests of a model that takes no more; false when it was deployed again meanwhile. */
  async #isLeft(entry: Entry): Promise<boolean> {
    const { modelId } = entry.deployment;
    const untilMs = Date.now() + LEAVING_MS_MAX;
    entry.isLeaving = true;
    this.#save();
    while (entry.isLeaving && Date.now() < untilMs && this.#options.openStreamsOf(modelId) > 0)
      await Bun.sleep(LEAVING_POLL_MS);
    return entry.isLeaving;
  }

  /** Ends every engine; what was wanted stays wanted, for the next start of this program. */
  async shutDown(): Promise<void> {
    this.#shuttingDown = true;
    await Promise.all([...this.#entries.values()].map(({ deployment }) => deployment.stop()));
  }

  target(modelId: string): EngineTarget | null {
    const entry = this.#entries.get(modelId);
    return entry && !entry.isLeaving ? entry.deployment.target : null;
  }

  serving(memory: ReadonlyMap<number, number> = new Map()): ServingModel[] {
    return [...this.#entries.values()].flatMap(({ deployment, isLeaving }) =>
      deployment.ready && deployment.port !== null && !isLeaving
        ? {
            model_id: deployment.modelId,
            port: deployment.port,
            engine: deployment.engineName,
            ...(deployment.apiKey ? { api_key: deployment.apiKey } : {}),
            memory_mb: deployment.memoryMb(memory),
            estimate: deployment.estimate ?? undefined,
          }
        : [],
    );
  }

  pending(): PendingModel[] {
    return [...this.#entries.values()].flatMap(({ deployment, isLeaving, streamIds }) =>
      deployment.ready && !isLeaving
        ? []
        : {
            model_id: deployment.modelId,
            ...standing(deployment, isLeaving),
            stream_id: streamIds.at(-1),
            estimate: deployment.estimate ?? undefined,
          },
    );
  }

  /** A report has room for so many models; failed ones are kept only for the report. */
  #makeRoom(): void {
    if (this.#entries.size < MODELS_MAX) return;
    const failed = [...this.#entries].find(([, { deployment }]) => deployment.progress.status === "failed");
    if (!failed) throw new Error(`this node has ${MODELS_MAX} models already: stop one of them first`);
    this.#entries.delete(failed[0]);
  }

  #begin(modelId: string, saved: SavedDeployment): void {
    const previous = this.#entries.get(modelId)?.deployment.finished ?? Promise.resolve();
    const entry: Entry = {
      apiKey: saved.api_key,
      options: saved.options,
      isLeaving: false,
      streamIds: [...saved.stream_ids],
      deployment: new Deployment({
        modelId,
        plan: () => planModel(modelId, this.#context.config, saved.options),
        failed: saved.failed,
        context: this.#context,
        after: previous,
        apiKey: saved.api_key,
        estimate: this.#estimates.get(modelId) ?? null,
        preferredPort: saved.port,
        provenBefore: saved.port !== null,
        onProgress: (progress) => this.#onProgress(entry, progress),
      }),
    };
    this.#entries.set(modelId, entry);
    this.#save();
  }

  #onProgress(entry: Entry, progress: Progress): void {
    this.#tell(entry, progress, entry.streamIds);
    if (progress.status === "ready" || progress.status === "failed") this.#save();
  }

  #tell({ deployment }: Entry, progress: Progress, streamIds: string[]): void {
    const where =
      progress.status === "ready" && deployment.port !== null
        ? {
            port: deployment.port,
            ...(this.#options.advertisedHost ? { host: this.#options.advertisedHost } : {}),
            ...(deployment.apiKey ? { api_key: deployment.apiKey } : {}),
          }
        : {};
    for (const stream_id of streamIds)
      this.#options.onProgress({ stream_id, model_id: deployment.modelId, ...progress, ...where });
  }

  #follow(entry: Entry, streamId: string): void {
    if (!entry.streamIds.includes(streamId)) entry.streamIds.push(streamId);
    if (entry.streamIds.length > STREAMS_MAX) entry.streamIds.shift();
  }

  #save(): void {
    // At the end of this program the engines stop, but what they serve is still wanted.
    if (this.#shuttingDown) return;
    // What failed is kept with its reason until it is deployed again, or stopped.
    const wanted = [...this.#entries.values()].filter(
      ({ deployment, isLeaving }) => !deployment.stopping && !isLeaving,
    );
    try {
      this.#options.state.save(
        wanted.map(({ deployment, apiKey, options, streamIds }) => ({
          model_id: deployment.modelId,
          options,
          stream_ids: streamIds,
          port: deployment.port,
          failed: deployment.live ? null : (deployment.progress.message ?? "it failed"),
          api_key: apiKey,
        })),
      );
    } catch (error) {
      this.#context.log.error("the state file cannot be written", { why: describeError(error) });
    }
  }
}

/** How a model that does not answer stands; one that was told to stop is no longer what it last said. */
function standing({ progress, stopping }: Deployment, isLeaving: boolean): Progress {
  return stopping || isLeaving
    ? { ...progress, status: "stopped", message: "its engine is ending" }
    : progress;
}
