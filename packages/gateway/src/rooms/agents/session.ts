import {
  type GATEWAY_METHODS,
  HEARTBEAT_INTERVAL_MS,
  type HeartbeatParams,
  type HelloParams,
  type HelloResult,
  PROTOCOL_VERSION,
  type ProgressParams,
} from "@model-gateway/protocol/agent.ts";
import type { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type NodeState, onlyDeployed, stateOfHello, withHeartbeat, withProgress } from "./state.ts";
import type { Deployments } from "./store.ts";

export interface AgentLink {
  /** Resolves with the node's answer; throws when it refuses, or does not answer in time. */
  request(method: keyof typeof GATEWAY_METHODS, params: Record<string, unknown>): Promise<unknown>;
  readonly tunnel: TunnelClient;
  /** Tells the node to connect elsewhere; this connection stays. */
  leaving(): void;
  close(code: number, reason: string): void;
}

export interface SessionEvents {
  hello(session: NodeSession): void;
  /** The node's state changed; `news` is the cause, unless it was a heartbeat. */
  changed(session: NodeSession, news: ProgressParams | null): void;
  /** The node serves a model for the first time since it was deployed there. */
  firstReady(session: NodeSession, modelId: string): void;
  /** The node has models that were not deployed to it, or no longer are: an order to stop was lost, or it claims them. */
  strays(session: NodeSession, modelIds: string[]): void;
  draining(session: NodeSession): Promise<void>;
  ended(session: NodeSession): void;
}

/** Who a connection belongs to, as its token says. */
export interface AgentIdentity {
  agentId: string;
  name: string;
  deployed: Deployments;
}

export interface SessionOptions extends AgentIdentity {
  link: AgentLink;
  clock: Clock;
  events: SessionEvents;
}

/** One connection of one node. Once it is over, nothing that still arrives from it has any effect. */
export class NodeSession {
  readonly agentId: string;
  readonly link: AgentLink;
  readonly openedAtMs: number;
  /** Models ordered here that the node has not reported on yet. */
  readonly reserved = new Set<string>();
  heardAtMs: number;
  /** The node has a newer connection elsewhere; this one is for the requests that began on it. */
  isSuperseded = false;
  #state: NodeState | null = null;
  #over = false;
  #deployed: Deployments;

  constructor(readonly options: SessionOptions) {
    this.agentId = options.agentId;
    this.link = options.link;
    this.openedAtMs = options.clock.now();
    this.heardAtMs = this.openedAtMs;
    this.#deployed = options.deployed;
  }

  get state(): NodeState | null {
    return this.#state;
  }

  get over(): boolean {
    return this.#over;
  }

  hello(params: HelloParams): HelloResult {
    const { agentId, name, clock, events } = this.options;
    if (!this.#over) {
      this.heardAtMs = clock.now();
      this.#state = this.#believed(stateOfHello(params, { agentId, name, connectedAtMs: this.openedAtMs }));
      events.hello(this);
    }
    return { agent_id: agentId, protocol: PROTOCOL_VERSION, heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS };
  }

  heartbeat(params: HeartbeatParams): void {
    const state = this.#hear();
    if (!state) return;
    this.reserved.clear();
    this.#set(withHeartbeat(state, params, this.heardAtMs), null);
    const pending = params.pending?.filter(({ status }) => status !== "stopped") ?? [];
    const strays = [...params.models, ...pending].flatMap(({ model_id }) =>
      this.#deployed.has(model_id) ? [] : model_id,
    );
    // Before its epoch is known, an order may have been given that this instance has not read of.
    if (strays.length > 0 && state.epoch > 0 && !this.isSuperseded) this.options.events.strays(this, strays);
  }

  progress(params: ProgressParams): void {
    const state = this.#hear();
    if (!state) return;
    this.reserved.delete(params.model_id);
    this.#set(withProgress(state, params), params);
  }

  closed(): void {
    if (this.#over) return;
    this.#over = true;
    this.options.events.ended(this);
  }

  close(code: number, reason: string): void {
    this.closed();
    this.link.close(code, reason);
  }

  setEpoch(epoch: number): void {
    if (this.#state) this.#state = { ...this.#state, epoch };
  }

  setDraining(draining: NodeState["draining"]): void {
    if (!this.#over && this.#state) this.#set({ ...this.#state, draining }, null);
  }

  /** The node is about to stop. */
  drain(): Promise<void> {
    return this.options.events.draining(this);
  }

  /** This instance stops: the node will go elsewhere. */
  setLeaving(): void {
    if (this.#state) this.#state = { ...this.#state, isLeaving: true };
  }

  /** From now on the node may serve these models, and no others. */
  setDeployed(deployed: Deployments): void {
    this.#deployed = deployed;
    if (!this.#over && this.#state) this.#set(this.#state, null);
  }

  hasDeployed(modelId: string): boolean {
    return this.#deployed.has(modelId);
  }

  deploy(modelId: string, besideBackends: boolean): void {
    const wasReady = this.#deployed.get(modelId)?.wasReady ?? false;
    this.setDeployed(new Map([...this.#deployed, [modelId, { besideBackends, wasReady }]]));
  }

  withdraw(modelId: string): void {
    this.setDeployed(new Map([...this.#deployed].filter(([id]) => id !== modelId)));
  }

  /** The state to update; null before the hello and after the session ended. */
  #hear(): NodeState | null {
    if (this.#over || !this.#state) return null;
    this.heardAtMs = this.options.clock.now();
    return this.#state;
  }

  #set(state: NodeState, news: ProgressParams | null): void {
    this.#state = this.#believed(state);
    this.options.events.changed(this, news);
  }

  #believed(state: NodeState): NodeState {
    for (const { model_id: modelId } of state.models) {
      const deployment = this.#deployed.get(modelId);
      if (!deployment || deployment.wasReady) continue;
      this.#deployed = new Map([...this.#deployed, [modelId, { ...deployment, wasReady: true }]]);
      this.options.events.firstReady(this, modelId);
    }
    return onlyDeployed(state, this.#deployed);
  }
}
