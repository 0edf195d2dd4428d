import type { ServingModel } from "@model-gateway/protocol/agent.ts";
import { type Backend, BackendError, type ModelPool, type NodeTunnel } from "../../backends/contract.ts";
import type { Log } from "../../kernel/log.ts";
import { comingModels, type NodeState } from "./state.ts";

/** Where backends become routable; what nodes bring is not persisted. */
export interface BackendRegistry {
  /** Resolves when it is known whether it answers. One that yields gets no model that a registered backend serves. */
  adopt(backend: Backend, options: { yields: boolean }): Promise<void>;
  /** It has got its first node, lost its last, or yields otherwise. Resolves when it is known whether it answers. */
  recheck(backend: Backend, options: { yields: boolean }): Promise<void>;
  dismiss(backend: Backend): Promise<void>;
  /** The registered backend that serves a model, whatever its health; null when only nodes do, or nobody. */
  ownerOf(modelId: string): string | null;
}

export interface Connection {
  /** Changes when the node reconnects or connects elsewhere. */
  id: string;
  tunnel: NodeTunnel;
}

interface ServingOptions {
  backends: BackendRegistry;
  createPool(modelId: string): ModelPool;
  log: Log;
}

interface Model {
  pool: ModelPool;
  /** Whether the router knows it, and whether a node served it then. */
  registered: "no" | "waiting" | "serving";
  yields: boolean;
  /** Settles when the router has taken note of the last change. */
  noted: Promise<void>;
  /** What each node's replica was made from, to detect changes. */
  made: Map<string, { fingerprint: string; decided: Promise<void> }>;
  coming: Set<string>;
  /** Nodes to which it was deployed to be served beside registered backends. */
  beside: Set<string>;
}

export const backendName = (modelId: string): string => `agent-${modelId}`;

/** Which models are routable, and where: one backend a model. While its engine restarts it is known but unreachable. */
export class Serving {
  readonly #models = new Map<string, Model>();
  #dismissals: Promise<unknown> = Promise.resolve();
  /** By node, from its first model until it is deregistered; its connection may come and go meanwhile. */
  readonly #ends = new Map<string, AbortController>();

  constructor(readonly options: ServingOptions) {}

  /** These are served as soon as they are asked for, whether a node has them now or not. */
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

  /** The node was deregistered: answers that are on their way from it end too. */
  endNode(agentId: string): void {
    this.removeNode(agentId);
    this.#ends.get(agentId)?.abort(new BackendError("transport", "the node was deregistered"));
    this.#ends.delete(agentId);
  }

  #endOf(agentId: string): AbortController {
    let end = this.#ends.get(agentId);
    if (!end) {
      end = new AbortController();
      this.#ends.set(agentId, end);
    }
    return end;
  }

  /** Resolves when nothing is routed any more to what was removed so far. */
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
    let model = this.#models.get(modelId);
    if (!model) {
      const pool = this.options.createPool(modelId);
      model = {
        pool,
        registered: "no",
        yields: true,
        noted: Promise.resolve(),
        made: new Map(),
        coming: new Set(),
        beside: new Set(),
      };
      this.#models.set(modelId, model);
    }
    return model;
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
      const { signal: ended } = this.#endOf(agentId);
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
    // An administrator who let one node serve the model beside backends has decided for the model.
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
