import type { ServingModel } from "@model-gateway/protocol/agent.ts";
import type { Backend, ModelPool, TunnelFetch } from "../../backends/contract.ts";
import type { Log } from "../../kernel/log.ts";
import type { NodeState } from "./state.ts";

/** Where backends become routable; what nodes bring is not persisted. */
export interface BackendRegistry {
  /** Resolves when it is known whether the backend answers. */
  adopt(backend: Backend): Promise<void>;
  dismiss(backend: Backend): Promise<void>;
}

/** How the node's connection is reached from this instance. */
export interface Connection {
  /** Changes when the node reconnects or connects elsewhere. */
  id: string;
  fetch: TunnelFetch;
}

interface ServingOptions {
  backends: BackendRegistry;
  createPool(modelId: string): ModelPool;
  log: Log;
}

interface Model {
  pool: ModelPool;
  registered: boolean;
  /** Settles when the router has the last change. */
  noted: Promise<void>;
  /** What each node's replica was made from, to detect changes. */
  made: Map<string, { fingerprint: string; decided: Promise<void> }>;
}

export const backendName = (modelId: string): string => `agent-${modelId}`;

/** Which models are routable, and on which nodes: one backend a model, registered while a node serves it. */
export class Serving {
  readonly #models = new Map<string, Model>();
  #dismissals: Promise<unknown> = Promise.resolve();

  constructor(readonly options: ServingOptions) {}

  /** Brings the node's replicas in line with its state; resolves when all of them are routable. */
  async update(state: NodeState, connection: Connection): Promise<void> {
    const wanted = new Set(state.models.map(({ model_id }) => model_id));
    for (const modelId of this.#models.keys()) if (!wanted.has(modelId)) this.#remove(modelId, state.agentId);
    await Promise.all(state.models.map((model) => this.#add(model, state, connection)));
  }

  /** The node is gone, with all it served. */
  removeNode(agentId: string): void {
    for (const modelId of [...this.#models.keys()]) this.#remove(modelId, agentId);
  }

  /** Resolves when nothing is routed any more to what was removed so far. */
  async dismissed(): Promise<void> {
    await this.#dismissals;
  }

  via(agentId: string, modelId: string): "direct" | "tunnel" | null {
    return this.#models.get(modelId)?.pool.via(agentId) ?? null;
  }

  /** The backend of a model that is routable now. */
  backend(modelId: string): Backend | null {
    const model = this.#models.get(modelId);
    return model?.registered ? model.pool.backend : null;
  }

  async #add(serving: ServingModel, state: NodeState, connection: Connection): Promise<void> {
    const { agentId, host, direct } = state;
    const { model_id: modelId, port, api_key: apiKey = null } = serving;
    let model = this.#models.get(modelId);
    if (!model) {
      const pool = this.options.createPool(modelId);
      model = { pool, registered: false, noted: Promise.resolve(), made: new Map() };
      this.#models.set(modelId, model);
    }
    const fingerprint = JSON.stringify([host, port, apiKey, direct, state.tunnel, connection.id]);
    let made = model.made.get(agentId);
    if (made?.fingerprint !== fingerprint) {
      const tunnel = state.tunnel ? connection.fetch : null;
      const replica = { agentId, host, port, apiKey, direct, tunnel };
      made = { fingerprint, decided: model.pool.set(replica) };
      model.made.set(agentId, made);
      this.#register(model);
    }
    await made.decided;
    this.#register(model);
    await model.noted;
  }

  #remove(modelId: string, agentId: string): void {
    const model = this.#models.get(modelId);
    if (!model?.made.delete(agentId)) return;
    model.pool.delete(agentId);
    this.#register(model);
    if (model.made.size === 0) this.#models.delete(modelId);
  }

  /** Registered exactly while the pool has a replica. */
  #register(model: Model): void {
    const { backend, size } = model.pool;
    const wanted = size > 0;
    if (model.registered === wanted) return;
    model.registered = wanted;
    const { backends, log } = this.options;
    const { name } = backend.config;
    model.noted = (wanted ? backends.adopt(backend) : backends.dismiss(backend)).catch((error: unknown) =>
      log.error("registering or removing a node's backend failed", { backend: name, error }),
    );
    if (!wanted) this.#dismissals = Promise.all([this.#dismissals, model.noted]);
    log.info(wanted ? "model is routable" : "model is no longer routable", { backend: name });
  }
}
