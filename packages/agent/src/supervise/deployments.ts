/** All models of this node: deploys, stops, restores what it served before, and reports their state. */

import {
  type DeployParams,
  MODELS_MAX,
  type PendingModel,
  type ProgressParams,
  type ServingModel,
} from "@model-gateway/protocol/agent.ts";
import { planModel } from "../engines/plan.ts";
import { findFreePort } from "../engines/ports.ts";
import { describeError } from "../errors.ts";
import { killAll, markedProcesses } from "../guard/processes.ts";
import type { EngineTarget } from "../tunnel-server.ts";
import { Deployment, type DeploymentContext } from "./deployment.ts";
import type { Progress } from "./progress.ts";
import type { SavedDeployment, StateFile } from "./state-file.ts";

/** Streams that follow one deployment; the oldest is dropped. */
const STREAMS_MAX = 16;

interface Entry {
  deployment: Deployment;
  apiKey: string;
  streamIds: string[];
}

export interface DeploymentsOptions {
  context: Omit<DeploymentContext, "takePort" | "returnPort" | "nodeId">;
  state: StateFile;
  /** Host that goes with the port of a ready model; null where it is reached through the tunnel. */
  advertisedHost: string | null;
  onProgress: (progress: ProgressParams) => void;
}

export class Deployments {
  readonly #options: DeploymentsOptions;
  readonly #context: DeploymentContext;
  readonly #entries = new Map<string, Entry>();
  readonly #ports = new Set<number>();
  #shuttingDown = false;

  constructor(options: DeploymentsOptions) {
    this.#options = options;
    const { bind, config } = options.context;
    this.#context = {
      ...options.context,
      nodeId: options.state.nodeId,
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

  deploy({ model_id, stream_id }: DeployParams): void {
    const current = this.#entries.get(model_id);
    if (current?.deployment.live) {
      this.#follow(current, stream_id);
      this.#tell(current, current.deployment.progress, [stream_id]);
      this.#save();
      return;
    }
    if (!current) this.#makeRoom();
    this.#begin(model_id, {
      model_id,
      stream_ids: [stream_id],
      port: null,
      api_key: crypto.randomUUID().replaceAll("-", ""),
    });
  }

  /** Stops a model; one that is not here is already stopped. */
  async stop(modelId: string): Promise<void> {
    const entry = this.#entries.get(modelId);
    if (!entry) return;
    const gone = entry.deployment.stop();
    // At once: a model whose engine is still ending when this program ends must not come back.
    this.#save();
    await gone;
    if (this.#entries.get(modelId) === entry) this.#entries.delete(modelId);
  }

  /** Ends every engine; what was wanted stays wanted, for the next start of this program. */
  async shutDown(): Promise<void> {
    this.#shuttingDown = true;
    await Promise.all([...this.#entries.values()].map(({ deployment }) => deployment.stop()));
  }

  target(modelId: string): EngineTarget | null {
    return this.#entries.get(modelId)?.deployment.target ?? null;
  }

  serving(): ServingModel[] {
    return [...this.#entries.values()].flatMap(({ deployment }) =>
      deployment.ready && deployment.port !== null
        ? {
            model_id: deployment.modelId,
            port: deployment.port,
            engine: deployment.engineName,
            ...(deployment.apiKey ? { api_key: deployment.apiKey } : {}),
          }
        : [],
    );
  }

  pending(): PendingModel[] {
    return [...this.#entries.values()].flatMap(({ deployment, streamIds }) =>
      deployment.ready
        ? []
        : { model_id: deployment.modelId, ...standing(deployment), stream_id: streamIds.at(-1) },
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
    let plan: ReturnType<typeof planModel>;
    try {
      plan = planModel(modelId, this.#context.config);
    } catch (error) {
      const message = describeError(error);
      this.#context.log.error("model cannot be deployed", { model: modelId, why: message });
      for (const stream_id of saved.stream_ids)
        this.#options.onProgress({ stream_id, model_id: modelId, status: "failed", progress: 0, message });
      return;
    }
    const entry: Entry = {
      apiKey: saved.api_key,
      streamIds: [...saved.stream_ids],
      deployment: new Deployment({
        modelId,
        plan,
        context: this.#context,
        after: previous,
        apiKey: saved.api_key,
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
    const wanted = [...this.#entries.values()].filter(({ deployment }) => deployment.live);
    try {
      this.#options.state.save(
        wanted.map(({ deployment, apiKey, streamIds }) => ({
          model_id: deployment.modelId,
          stream_ids: streamIds,
          port: deployment.port,
          api_key: apiKey,
        })),
      );
    } catch (error) {
      this.#context.log.error("the state file cannot be written", { why: describeError(error) });
    }
  }
}

/** How a model that does not answer stands; one that was told to stop is no longer what it last said. */
function standing({ progress, stopping }: Deployment): Progress {
  return stopping ? { ...progress, status: "stopped", message: "its engine is ending" } : progress;
}
