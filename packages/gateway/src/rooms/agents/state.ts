/** The state of a connected node; instances exchange it in this form. */
import {
  GpuReport,
  type HeartbeatParams,
  type HelloParams,
  MODELS_MAX,
  PendingModel,
  type ProgressParams,
  ServingModel,
} from "@model-gateway/protocol/agent.ts";
import { z } from "zod";
import type { Deployments } from "./store.ts";

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

export function stateOfHello(
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

export const withHeartbeat = (state: NodeState, beat: HeartbeatParams, nowMs: number): NodeState => ({
  ...state,
  gpus: beat.gpus,
  models: beat.models,
  pending: beat.pending ?? [],
  heartbeatAtMs: nowMs,
});

export function withProgress(state: NodeState, news: ProgressParams): NodeState {
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
export function onlyDeployed(state: NodeState, deployed: Deployments): NodeState {
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

/** Models that are starting or restarting. */
export const comingModels = ({ pending }: NodeState): string[] =>
  pending.filter(({ status }) => !OVER.includes(status)).map(({ model_id }) => model_id);

/** Mean over the GPUs that report it; null when none does. */
export function gpuUtilization(gpus: readonly GpuReport[]): number | null {
  const known = gpus.flatMap(({ utilization }) => (utilization === null ? [] : utilization));
  if (known.length === 0) return null;
  return Math.round((known.reduce((sum, each) => sum + each, 0) / known.length) * 10) / 10;
}
