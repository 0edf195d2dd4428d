import {
  type GATEWAY_METHODS,
  GpuReport,
  HEARTBEAT_INTERVAL_MS,
  type HeartbeatParams,
  type HelloParams,
  type HelloResult,
  MODELS_MAX,
  PendingModel,
  PROTOCOL_VERSION,
  type ProgressParams,
  ServingModel,
} from "@model-gateway/protocol/agent.ts";
import type { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import { z } from "zod";
import type { Clock } from "../../kernel/clock.ts";
import type { Agents } from "./service.ts";
import type { Deployments } from "./store.ts";

/** The state of a connected node; instances exchange it in this form. */
export const NodeState = z.object({
  agentId: z.string(),
  name: z.string(),
  /** Grows with every connection of the node: reports from older connections are ignored. */
  epoch: z.int(),
  version: z.string(),
  host: z.string(),
  /** Whether the gateway may dial the node's host and ports. */
  direct: z.boolean(),
  /** Whether the node carries inference through its own connection. */
  tunnel: z.boolean(),
  gpus: z.array(GpuReport),
  models: z.array(ServingModel),
  pending: z.array(PendingModel),
  /** Models that may be served beside registered backends. */
  besideBackends: z.array(z.string()),
  /** Models that it has served since their deployment. */
  wasReady: z.array(z.string()),
  /** Its instance is stopping: the node will reconnect elsewhere, and its requests there finish. */
  isLeaving: z.boolean().optional(),
  /** The node is about to stop: its models are served elsewhere if possible. */
  draining: z.enum(["moving", "empty"]).optional(),
  connectedAtMs: z.number(),
  heartbeatAtMs: z.number(),
});
export type NodeState = z.infer<typeof NodeState>;

const OVER: readonly string[] = ["failed", "stopped"];

function stateOfHello(
  hello: HelloParams,
  node: Pick<NodeState, "agentId" | "name" | "connectedAtMs">,
): NodeState {
  return {
    ...node,
    epoch: 0,
    version: hello.version,
    host: hello.host,
    // A node without tunnel support can only be reached by host and port.
    direct: hello.direct ?? true,
    tunnel: hello.tunnel ?? false,
    gpus: hello.gpus,
    models: hello.models,
    pending: hello.pending ?? [],
    besideBackends: [],
    wasReady: [],
    heartbeatAtMs: node.connectedAtMs,
  };
}

const withHeartbeat = (state: NodeState, beat: HeartbeatParams, nowMs: number): NodeState => ({
  ...state,
  gpus: beat.gpus,
  models: beat.models,
  pending: beat.pending ?? [],
  heartbeatAtMs: nowMs,
});

function withProgress(state: NodeState, news: ProgressParams): NodeState {
  const { model_id, status, progress, message, port, api_key, stream_id } = news;
  const host = (status === "ready" && news.host) || state.host;
  const models = state.models.filter((model) => model.model_id !== model_id);
  const pending = state.pending.filter((model) => model.model_id !== model_id);
  if (status === "ready") {
    const known = state.models.find((model) => model.model_id === model_id);
    // Without a port its address is unknown until the next heartbeat.
    const at = port ?? known?.port;
    if (at !== undefined) models.push({ ...known, model_id, port: at, api_key });
  } else if (status !== "stopped") pending.push({ model_id, status, progress, message, stream_id });
  // A node that keeps reporting new models is broken; its reports about known ones still count.
  return models.length > MODELS_MAX || pending.length > MODELS_MAX
    ? state
    : { ...state, host, models, pending };
}

/** A node's list of models is only a claim; those deployed to it are believed. */
function onlyDeployed(state: NodeState, deployed: Deployments): NodeState {
  const isDeployed = ({ model_id }: { model_id: string }) => deployed.has(model_id);
  return {
    ...state,
    models: state.models.filter(isDeployed),
    pending: state.pending.filter(isDeployed),
    besideBackends: [...deployed].flatMap(([modelId, each]) => (each.besideBackends ? modelId : [])),
    wasReady: [...deployed].flatMap(([modelId, each]) => (each.wasReady ? modelId : [])),
  };
}

/** Models that occupy the node, or are about to. */
export const occupyingModels = (state: NodeState): string[] => [
  ...state.models.map(({ model_id }) => model_id),
  ...comingModels(state),
];

export const comingModels = ({ pending }: NodeState): string[] =>
  pending.filter(({ status }) => !OVER.includes(status)).map(({ model_id }) => model_id);

/** Mean over the GPUs that report it; null when none does. */
export function gpuUtilization(gpus: readonly GpuReport[]): number | null {
  const known = gpus.flatMap(({ utilization }) => (utilization === null ? [] : utilization));
  if (known.length === 0) return null;
  return Math.round((known.reduce((sum, each) => sum + each, 0) / known.length) * 10) / 10;
}

export interface AgentLink {
  /** Resolves with the node's answer; throws if it refuses or times out. */
  request(method: keyof typeof GATEWAY_METHODS, params: Record<string, unknown>): Promise<unknown>;
  readonly tunnel: TunnelClient;
  /** Tells the node to connect elsewhere; this connection stays. */
  leaving(): void;
  close(code: number, reason: string): void;
}

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

  drain(): Promise<void> {
    return this.options.events.draining(this);
  }

  /** Changes the state without an event; the caller announces it. */
  note(noted: Pick<Partial<NodeState>, "epoch" | "isLeaving">): void {
    if (this.state) this.state = { ...this.state, ...noted };
  }

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
