import type { ServingModel } from "@model-gateway/protocol/agent.ts";
import { type Backend, BackendError, type ModelPool, type NodeTunnel } from "../../backends/contract.ts";
import type { AgentsOptions } from "./service.ts";
import { comingModels, type NodeState } from "./session.ts";

export interface Connection {
  /** Changes when the node reconnects or connects elsewhere. */
  id: string;
  tunnel: NodeTunnel;
}

interface Model {
  pool: ModelPool;
  /** Whether the router knows the backend, and whether a node served it at that time. */
  registered: "no" | "waiting" | "serving";
  yields: boolean;
  /** Settles when the router has applied the last change. */
  noted: Promise<void>;
  /** What each replica was made from, to detect changes. */
  made: Map<string, { fingerprint: string; decided: Promise<void> }>;
  coming: Set<string>;
  /** Nodes whose deployment may serve it beside registered backends. */
  beside: Set<string>;
}

export const backendName = (modelId: string): string => `agent-${modelId}`;

/** One backend per model, with its nodes. While an engine restarts, its model is known but unreachable. */
export class Serving {
  readonly #models = new Map<string, Model>();
  #dismissals: Promise<unknown> = Promise.resolve();
  /** By node, from its first model until it is deregistered, across reconnections. */
  readonly #ends = new Map<string, AbortController>();

  constructor(readonly options: Pick<AgentsOptions, "backends" | "createPool" | "log">) {}

  /** Models that are started on demand, and so are always routable. */
  standBy(modelIds: ReadonlySet<string>): void {
    for (const modelId of modelIds) this.#model(modelId);
    for (const [modelId, model] of [...this.#models]) {
      if (model.pool.isStandby === modelIds.has(modelId)) continue;
      model.pool.isStandby = modelIds.has(modelId);
      this.#register(model);
      this.#forgetUnused(modelId, model);
    }
  }

  pool(modelId: string): ModelPool | null {
    return this.#models.get(modelId)?.pool ?? null;
  }

  /** Brings the node's replicas in line with its state; resolves when all of them are routable. */
  async update(node: NodeState, connection: Connection): Promise<void> {
    const { agentId } = node;
    const state = node.draining === "empty" ? { ...node, models: [], pending: [] } : node;
    for (const { model_id, progress } of state.pending) {
      const pool = this.pool(model_id);
      if (pool) pool.loadedPercent = progress;
    }
    const wanted = new Set(state.models.map(({ model_id }) => model_id));
    const coming = new Set(comingModels(state).filter((modelId) => state.wasReady.includes(modelId)));
    const beside = new Set(state.besideBackends);
    for (const modelId of coming) this.#model(modelId).coming.add(agentId);
    for (const modelId of wanted) this.#model(modelId);
    for (const [modelId, model] of [...this.#models]) {
      if (beside.has(modelId) && (wanted.has(modelId) || coming.has(modelId))) model.beside.add(agentId);
      else model.beside.delete(agentId);
      if (!coming.has(modelId)) model.coming.delete(agentId);
      if (!wanted.has(modelId)) this.#remove(modelId, agentId);
    }
    await Promise.all(state.models.map((model) => this.#add(model, state, connection)));
  }

  removeNode(agentId: string): void {
    for (const [modelId, model] of [...this.#models]) {
      model.coming.delete(agentId);
      model.beside.delete(agentId);
      this.#remove(modelId, agentId);
    }
  }

  /** The node was deregistered: answers in flight from it end too. */
  endNode(agentId: string): void {
    this.removeNode(agentId);
    this.#ends.get(agentId)?.abort(new BackendError("transport", "the node was deregistered"));
    this.#ends.delete(agentId);
  }

  /** Resolves when routing no longer uses anything removed so far. */
  async dismissed(): Promise<void> {
    await this.#dismissals;
  }

  via(agentId: string, modelId: string): "direct" | "tunnel" | null {
    return this.#models.get(modelId)?.pool.via(agentId) ?? null;
  }

  backend(modelId: string): Backend | null {
    const model = this.#models.get(modelId);
    return model?.registered === "serving" ? model.pool.backend : null;
  }

  #model(modelId: string): Model {
    return this.#models.getOrInsertComputed(modelId, () => ({
      pool: this.options.createPool(modelId),
      registered: "no",
      yields: true,
      noted: Promise.resolve(),
      made: new Map(),
      coming: new Set(),
      beside: new Set(),
    }));
  }

  async #add(serving: ServingModel, state: NodeState, connection: Connection): Promise<void> {
    const { agentId, host, direct } = state;
    const { model_id: modelId, port, api_key: apiKey = null } = serving;
    const model = this.#model(modelId);
    const isLast = state.draining !== undefined;
    const fingerprint = JSON.stringify([host, port, apiKey, direct, state.tunnel, connection.id, isLast]);
    let made = model.made.get(agentId);
    if (made?.fingerprint !== fingerprint) {
      const tunnel = state.tunnel ? connection.tunnel : null;
      const { signal: ended } = this.#ends.getOrInsertComputed(agentId, () => new AbortController());
      const replica = { agentId, host, port, apiKey, direct, tunnel, ended, isLast };
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
    if (!model) return;
    if (model.made.delete(agentId)) model.pool.delete(agentId);
    this.#register(model);
    this.#forgetUnused(modelId, model);
  }

  #forgetUnused(modelId: string, { made, coming, pool }: Model): void {
    if (made.size === 0 && coming.size === 0 && !pool.isStandby) this.#models.delete(modelId);
  }

  #register(model: Model): void {
    const { backend, size, isStandby } = model.pool;
    const before = model.registered;
    const wanted = size > 0 || isStandby ? "serving" : model.coming.size > 0 ? "waiting" : "no";
    // Allowing one node to serve the model beside backends allows it for the model.
    const yields = model.beside.size === 0;
    if (before === wanted && (wanted === "no" || model.yields === yields)) return;
    model.registered = wanted;
    model.yields = yields;
    const { backends, log } = this.options;
    const { name } = backend.config;
    const noting =
      wanted === "no"
        ? backends.dismiss(backend)
        : before === "no"
          ? backends.adopt(backend, { yields })
          : backends.recheck(backend, { yields });
    model.noted = noting.catch((error: unknown) =>
      log.error("a node's model could not be made (un)routable", { backend: name, error }),
    );
    if (before === "serving") this.#dismissals = Promise.all([this.#dismissals, model.noted]);
    if (before === wanted) return;
    if (wanted === "serving") log.info("model is routable", { backend: name });
    else if (before === "serving") log.info("model is no longer routable", { backend: name, state: wanted });
  }
}
