import { inBackground } from "../../kernel/log.ts";
import type { Needs } from "../foundation.ts";
import { type Fit, hasRoom } from "./placement.ts";
import type { Order } from "./service.ts";
import type { Serving } from "./serving.ts";
import { type NodeState, occupyingModels } from "./state.ts";
import type { AgentStore, ManagedModel, NotedColumn } from "./store.ts";

const TICK_MS = 1_000;
const CHANGED = "agent-models";
const LEASE = "agent-models";
/** Longer than a node has to say how a model fits. */
const LEASE_MS = 20_000;
/** For so long it counts what an instance has noted: that calls wait, or are under way. */
const NOTED_MS = 3 * TICK_MS;
/** How long a node has to end what was put away there, before more is. */
const EMPTIED_WITHIN_MS = 60_000;

interface FleetOptions extends Needs<"bus" | "clock" | "leases" | "log"> {
  store: AgentStore;
  serving: Serving;
  online(): NodeState[];
  fits(modelId: string, serving: Order["serving"]): Promise<Fit[]>;
  deploy(userId: string, order: Order): Promise<unknown>;
  putAway(agentId: string, modelId: string): Promise<unknown>;
}

/** Starts and ends managed models. Every instance tells through the database what is asked of it; one of them decides. */
export class Fleet {
  /** Models that room is being made for: where, which is kept for them, and how long that may take. */
  readonly #emptying = new Map<string, { agentId: string; untilMs: number }>();
  readonly #stop: () => void;
  /** While there are no managed models, nobody asks for them. */
  #mayHaveModels = true;
  #running: Promise<void> | null = null;
  /** Models that some node has to serve at any time. */
  #kept = new Set<string>();

  constructor(readonly options: FleetOptions) {
    const { bus, clock, log } = options;
    const unsubscribe = bus.subscribe(CHANGED, () => {
      this.#mayHaveModels = true;
    });
    const tick = () => inBackground(log, "keeping models on nodes", this.tick());
    const stopTicks = clock.every(TICK_MS, tick);
    this.#stop = () => {
      stopTicks();
      unsubscribe();
    };
    tick();
  }

  close(): void {
    this.#stop();
  }

  isKept(modelId: string): boolean {
    return this.#kept.has(modelId);
  }

  async set(model: Omit<ManagedModel, NotedColumn>): Promise<void> {
    const { store, bus, clock } = this.options;
    await store.setModel({ ...model, used_ms: clock.now() });
    bus.publish(CHANGED, model.model_id);
    this.#mayHaveModels = true;
    await this.#running;
    await this.tick();
  }

  tick(): Promise<void> {
    if (!this.#mayHaveModels) return Promise.resolve();
    this.#running ??= this.#tick().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #tick(): Promise<void> {
    const { store, serving, leases, log } = this.options;
    const known = await store.models();
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
    const { store, serving, clock } = this.options;
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
    const { clock, online } = this.options;
    const { model_id, replicas_min, replicas_max } = model;
    const isAt = (node: NodeState) => occupyingModels(node).includes(model_id);
    const at = online().filter((node) => node.draining === undefined && isAt(node));
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
    // Those who waited for it were served; it is not started again for them.
    await this.options.store.note(modelId, "wanted_ms", 0);
    await this.options.putAway(agentId, modelId);
  }

  /** Not more often than once in its minimum time, so that models do not chase each other. */
  async #start(model: ManagedModel, at: readonly NodeState[]): Promise<void> {
    const { clock, store, leases, fits, deploy } = this.options;
    const { model_id: modelId, user_id } = model;
    if (this.#isYoung(model) || !(await leases.acquire(LEASE, LEASE_MS))) return;
    const serving = JSON.parse(model.serving) as Order["serving"];
    const nowMs = clock.now();
    const kept = [...this.#emptying].filter(([other, { untilMs }]) => other !== modelId && untilMs > nowMs);
    const taken = new Set([...at, ...kept.map(([, node]) => node)].map(({ agentId }) => agentId));
    const found = (await fits(modelId, serving)).filter(({ state }) => !taken.has(state.agentId));
    const best = found.find(hasRoom);
    if (best) {
      const { agentId } = best.state;
      await store.note(modelId, "started_ms", clock.now());
      this.#emptying.delete(modelId);
      await deploy(user_id, { modelId, agentId, besideBackends: false, serving });
      return;
    }
    if ((this.#emptying.get(modelId)?.untilMs ?? 0) > nowMs) return;
    const room = this.#makeRoom(await this.#noted(await store.models()), found);
    if (!room) return;
    this.#emptying.set(modelId, { agentId: room.agentId, untilMs: nowMs + EMPTIED_WITHIN_MS });
    for (const each of room.going) await this.#putAway(room.agentId, each);
  }

  #isYoung({ started_ms, minimum_ms }: ManagedModel): boolean {
    return this.options.clock.now() - started_ms < minimum_ms;
  }

  /** The node where the least recently used models make room; one with requests under way never does. */
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
