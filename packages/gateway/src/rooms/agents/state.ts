/** What is known of a connected node; instances send each other the same form. */
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
  /** Whether host and ports are meant to be dialled. */
  direct: z.boolean(),
  /** Whether the node carries inference through its own connection. */
  tunnel: z.boolean(),
  gpus: z.array(GpuReport),
  models: z.array(ServingModel),
  pending: z.array(PendingModel),
  /** Those of its models that may be served beside registered backends. */
  besideBackends: z.array(z.string()),
  /** Those of its models that it has served since they were deployed to it. */
  wasReady: z.array(z.string()),
  /** The instance that holds it is stopping: the node will be elsewhere, and its requests there finish. */
  isLeaving: z.boolean().optional(),
  /** It is about to go: its models are asked elsewhere where they can be, and then not here any more. */
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

/** What a node says of its models is a claim: those that were deployed to it are believed. */
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

/** Models that take, or are about to take, a place on the node. */
export const occupyingModels = (state: NodeState): string[] => [
  ...state.models.map(({ model_id }) => model_id),
  ...comingModels(state),
];

/** Models on their way to being served, for the first time or again. */
export const comingModels = ({ pending }: NodeState): string[] =>
  pending.filter(({ status }) => !OVER.includes(status)).map(({ model_id }) => model_id);

/** Mean over the GPUs that report it; null when none does. */
export function gpuUtilization(gpus: readonly GpuReport[]): number | null {
  const known = gpus.flatMap(({ utilization }) => (utilization === null ? [] : utilization));
  if (known.length === 0) return null;
  return Math.round((known.reduce((sum, each) => sum + each, 0) / known.length) * 10) / 10;
}
