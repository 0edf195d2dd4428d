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
import type { Agents } from "./service.ts";
import { type NodeState, onlyDeployed, stateOfHello, withHeartbeat, withProgress } from "./state.ts";
import type { Deployments } from "./store.ts";

export interface AgentLink {
  /** Resolves with the node's answer; throws if it refuses or times out. */
  request(method: keyof typeof GATEWAY_METHODS, params: Record<string, unknown>): Promise<unknown>;
  readonly tunnel: TunnelClient;
  /** Tells the node to connect elsewhere; this connection stays. */
  leaving(): void;
  close(code: number, reason: string): void;
}

/** Who a connection belongs to, as its token says. */
export interface AgentIdentity {
  agentId: string;
  name: string;
  deployed: Deployments;
}

type SessionOptions = AgentIdentity & { link: AgentLink; clock: Clock; events: Agents["events"] };

/** One connection of one node. After its end, late messages have no effect. */
export class NodeSession {
  readonly agentId: string;
  readonly link: AgentLink;
  readonly openedAtMs: number;
  /** Models ordered here that the node has not reported on yet. */
  readonly reserved = new Set<string>();
  heardAtMs: number;
  /** The node has a newer connection elsewhere; this one only finishes its requests. */
  isSuperseded = false;
  state: NodeState | null = null;
  over = false;
  #deployed: Deployments;

  constructor(readonly options: SessionOptions) {
    this.agentId = options.agentId;
    this.link = options.link;
    this.openedAtMs = options.clock.now();
    this.heardAtMs = this.openedAtMs;
    this.#deployed = options.deployed;
  }

  hello(params: HelloParams): HelloResult {
    const { agentId, name, clock, events } = this.options;
    if (!this.over) {
      this.heardAtMs = clock.now();
      this.state = this.#believed(stateOfHello(params, { agentId, name, connectedAtMs: this.openedAtMs }));
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
    // Until its epoch is known, there may be an order that this instance has not read yet.
    if (strays.length > 0 && state.epoch > 0 && !this.isSuperseded) this.options.events.strays(this, strays);
  }

  progress(params: ProgressParams): void {
    const state = this.#hear();
    if (!state) return;
    this.reserved.delete(params.model_id);
    this.#set(withProgress(state, params), params);
  }

  closed(): void {
    if (this.over) return;
    this.over = true;
    this.options.events.ended(this);
  }

  close(code: number, reason: string): void {
    this.closed();
    this.link.close(code, reason);
  }

  setDraining(draining: NodeState["draining"]): void {
    if (!this.over && this.state) this.#set({ ...this.state, draining }, null);
  }

  /** The node is about to stop. */
  drain(): Promise<void> {
    return this.options.events.draining(this);
  }

  /** Changes the state without an event; the caller announces it. */
  note(noted: Pick<Partial<NodeState>, "epoch" | "isLeaving">): void {
    if (this.state) this.state = { ...this.state, ...noted };
  }

  /** Sets the models that the node may serve. */
  setDeployed(deployed: Deployments): void {
    this.#deployed = deployed;
    if (!this.over && this.state) this.#set(this.state, null);
  }

  /** Returns whether it was deployed there already. */
  deploy(modelId: string, besideBackends: boolean): boolean {
    const before = this.#deployed.get(modelId);
    const deployment = { besideBackends, wasReady: before?.wasReady ?? false };
    this.setDeployed(new Map([...this.#deployed, [modelId, deployment]]));
    return before !== undefined;
  }

  withdraw(modelId: string): void {
    this.setDeployed(new Map([...this.#deployed].filter(([id]) => id !== modelId)));
  }

  /** The state to update; null before the hello and after the session ended. */
  #hear(): NodeState | null {
    if (this.over || !this.state) return null;
    this.heardAtMs = this.options.clock.now();
    return this.state;
  }

  #set(state: NodeState, news: ProgressParams | null): void {
    this.state = this.#believed(state);
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
