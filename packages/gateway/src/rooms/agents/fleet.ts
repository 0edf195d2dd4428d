import type { EstimateResult } from "@model-gateway/protocol/agent.ts";
import { oneAtATime } from "../../kernel/bounded.ts";
import { inBackground } from "../../kernel/log.ts";
import type { Needs } from "../foundation.ts";
import type { Agents, Order } from "./service.ts";
import type { Serving } from "./serving.ts";
import { gpuUtilization, type NodeState, occupyingModels } from "./session.ts";
import type { ManagedModel, NotedColumn } from "./store.ts";

const TICK_MS = 1_000;
const CHANGED = "agent-models";
const LEASE = "agent-models";
/** Longer than a node may take to estimate whether a model fits. */
const LEASE_MS = 20_000;
/** How long an instance's note counts that calls are waiting or running. */
const NOTED_MS = 3 * TICK_MS;
/** How long a node may take to end evicted models before more are evicted. */
const EMPTIED_WITHIN_MS = 60_000;

type FleetOptions = Needs<"bus" | "clock" | "leases" | "log"> & { serving: Serving; agents: Agents };

/** Starts and ends managed models. Every instance writes its demand to the database; one instance decides. */
export class Fleet {
  /** Models for which room is being made: on which node, and until when. */
  readonly #emptying = new Map<string, { agentId: string; untilMs: number }>();
  readonly close: () => void;
  /** False while there are no managed models, which saves the queries. */
  #mayHaveModels = true;
  readonly #run = oneAtATime(() => this.#tick());
  #kept = new Set<string>();

  constructor(readonly options: FleetOptions) {
    const { bus, clock, log } = options;
    const unsubscribe = bus.subscribe(CHANGED, () => {
      this.#mayHaveModels = true;
    });
    const tick = () => inBackground(log, "keeping models on nodes", this.tick());
    const stopTicks = clock.every(TICK_MS, tick);
    this.close = () => {
      stopTicks();
      unsubscribe();
    };
    tick();
  }

  isKept(modelId: string): boolean {
    return this.#kept.has(modelId);
  }

  async set(model: Omit<ManagedModel, NotedColumn>): Promise<void> {
    const { agents, bus, clock } = this.options;
    await agents.store.setModel({ ...model, used_ms: clock.now() });
    bus.publish(CHANGED, model.model_id);
    this.#mayHaveModels = true;
    await this.#run.running;
    await this.tick();
  }

  tick(): Promise<void> {
    return this.#mayHaveModels ? this.#run() : Promise.resolve();
  }

  async #tick(): Promise<void> {
    const { agents, serving, leases, log } = this.options;
    const known = await agents.store.models();
    this.#mayHaveModels = known.length > 0;
    this.#kept = new Set(known.flatMap(({ replicas_min, model_id }) => (replicas_min > 0 ? model_id : [])));
    serving.standBy(new Set(known.flatMap(({ mode, model_id }) => (mode === "off" ? [] : model_id))));
    const models = await this.#noted(known);
    if (known.length === 0 || !(await leases.acquire(LEASE, LEASE_MS))) return;
    for (const model of models)
      await this.#keep(model).catch((error: Error) =>
        log.warn("a model could not be started or put away", { model: model.model_id, error: error.message }),
      );
  }

  /** The models, with what every instance has noted of them. */
  async #noted(models: readonly ManagedModel[]): Promise<ManagedModel[]> {
    const { agents, serving, clock } = this.options;
    const { store } = agents;
    for (const { model_id, used_ms } of models) {
      const pool = serving.pool(model_id);
      if (!pool) continue;
      const nowMs = clock.now();
      if (pool.isWanted()) await store.note(model_id, "wanted_ms", nowMs);
      const usedMs = Math.min(pool.usedMs(), nowMs + NOTED_MS);
      if (usedMs > used_ms) await store.note(model_id, "used_ms", usedMs);
    }
    return store.models();
  }

  async #keep(model: ManagedModel): Promise<void> {
    const { clock, agents } = this.options;
    const { model_id, replicas_min, replicas_max } = model;
    const isAt = (node: NodeState) => occupyingModels(node).includes(model_id);
    const at = agents.states().filter((node) => node.draining === undefined && isAt(node));
    const isComing = at.some(({ models: ready }) => !ready.some((each) => each.model_id === model_id));
    const nowMs = clock.now();
    const isWanted = nowMs - model.wanted_ms < NOTED_MS;
    const isIdle = nowMs - Math.max(model.used_ms, model.wanted_ms) >= model.idle_ms;
    if (at.length < replicas_min || (isWanted && !isComing && at.length < replicas_max))
      return this.#start(model, at);
    this.#emptying.delete(model_id);
    if (at.length > replicas_max || (at.length > replicas_min && isIdle))
      await this.#putAway(at.at(-1)!.agentId, model_id);
  }

  async #putAway(agentId: string, modelId: string): Promise<void> {
    // The callers that waited have been served, so it is not restarted for them.
    const { agents } = this.options;
    await agents.store.note(modelId, "wanted_ms", 0);
    await agents.stop(agentId, modelId, { gently: true });
  }

  /** Starts a model at most once per its minimum time, so that models do not evict each other in turn. */
  async #start(model: ManagedModel, at: readonly NodeState[]): Promise<void> {
    const { clock, agents, leases } = this.options;
    const { model_id: modelId, user_id } = model;
    if (this.#isYoung(model) || !(await leases.acquire(LEASE, LEASE_MS))) return;
    const serving = JSON.parse(model.serving) as Order["serving"];
    const nowMs = clock.now();
    const kept = [...this.#emptying].filter(([other, { untilMs }]) => other !== modelId && untilMs > nowMs);
    const taken = new Set([...at, ...kept.map(([, node]) => node)].map(({ agentId }) => agentId));
    const found = (await agents.fits(modelId, serving)).filter(({ state }) => !taken.has(state.agentId));
    const best = found.find(hasRoom);
    if (best) {
      const { agentId } = best.state;
      await agents.store.note(modelId, "started_ms", clock.now());
      this.#emptying.delete(modelId);
      await agents.deploy(user_id, { modelId, agentId, besideBackends: false, serving });
      return;
    }
    if ((this.#emptying.get(modelId)?.untilMs ?? 0) > nowMs) return;
    const room = this.#makeRoom(await this.#noted(await agents.store.models()), found);
    if (!room) return;
    this.#emptying.set(modelId, { agentId: room.agentId, untilMs: nowMs + EMPTIED_WITHIN_MS });
    for (const each of room.going) await this.#putAway(room.agentId, each);
  }

  #isYoung({ started_ms, minimum_ms }: ManagedModel): boolean {
    return this.options.clock.now() - started_ms < minimum_ms;
  }

  /** The node on which evicting the least recently used models makes room. Models with running requests are kept. */
  #makeRoom(models: readonly ManagedModel[], fits: readonly Fit[]) {
    const nowMs = this.options.clock.now();
    const mayGo = models
      .filter((each) => each.replicas_min === 0 && each.used_ms <= nowMs && !this.#isYoung(each))
      .sort((a, b) => a.used_ms - b.used_ms);
    const ways = fits.flatMap(({ state, estimate, room_mb }) => {
      if (estimate === null) return [];
      const going: ManagedModel[] = [];
      let roomMb = room_mb ?? 0;
      for (const each of mayGo) {
        const served = state.models.find(({ model_id }) => model_id === each.model_id);
        if (!served || roomMb >= estimate.total_mb) continue;
        going.push(each);
        roomMb += served.memory_mb ?? served.estimate?.total_mb ?? 0;
      }
      return going.length > 0 && roomMb >= estimate.total_mb
        ? {
            agentId: state.agentId,
            usedMs: going.at(-1)!.used_ms,
            going: going.map(({ model_id }) => model_id),
          }
        : [];
    });
    return ways.sort((a, b) => a.usedMs - b.usedMs)[0];
  }
}

/** A node whose driver reports nothing counts as busy. */
const UTILIZATION_UNKNOWN = 100;

export interface Candidate {
  state: NodeState;
  /** Models just ordered that the node has not reported on yet. */
  reserved: ReadonlySet<string>;
}

/** A node's estimate for a model that it does not have; both null: it cannot tell. */
export type Fit = Candidate & EstimateResult;

export const hasRoom = ({ estimate, room_mb }: EstimateResult): boolean =>
  estimate === null || room_mb === null || room_mb >= estimate.total_mb;

/** Sorts by most memory left after the model, lowest GPU utilisation, fewest models, then name for a stable order. */
export function byRoom(fits: readonly Fit[]): Fit[] {
  const ranked = fits.map((fit) => {
    const { state, reserved, estimate, room_mb } = fit;
    return {
      fit,
      leftMb: (room_mb ?? 0) - (estimate?.total_mb ?? 0),
      utilization: gpuUtilization(state.gpus) ?? UTILIZATION_UNKNOWN,
      modelCount: new Set([...occupyingModels(state), ...reserved]).size,
      name: `${state.name} ${state.agentId}`,
    };
  });
  ranked.sort(
    (a, b) =>
      b.leftMb - a.leftMb ||
      a.utilization - b.utilization ||
      a.modelCount - b.modelCount ||
      (a.name < b.name ? -1 : 1),
  );
  return ranked.map(({ fit }) => fit);
}

/** Why a model fits nowhere, in figures. */
export function refusalOf(modelId: string, fits: readonly Fit[]): string {
  const figure = (mb: number | null) => mb?.toLocaleString("en-US", { maximumFractionDigits: 0 }) ?? "?";
  const rooms = fits.slice(0, 8).map(({ state, estimate, room_mb }) => {
    const { weights_mb, cache_mb, overhead_mb, total_mb } = estimate!;
    return `${state.name} has room for ${figure(room_mb)} of ${figure(total_mb)} MB (weights ${figure(weights_mb)}, cache ${figure(cache_mb)}, overhead ${figure(overhead_mb)})`;
  });
  return `${modelId} fits on no node: ${rooms.join("; ")}; stop a model, lower \`context_tokens\` or \`slots\`, or name a node to try it there`;
}
