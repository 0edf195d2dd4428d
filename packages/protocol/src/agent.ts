/**
 * The messages of the agent tunnel (`GET /ws/agent`). Text messages are JSON-RPC 2.0, defined here; binary messages
 * are the frames of tunnelled HTTP, defined in tunnel/frames.ts.
 *
 * Agent to gateway: `agent.hello` and `agent.heartbeat` are requests, so that a missing answer tells the agent that
 * the link is dead; `agent.progress` is a notification. Gateway to agent: `agent.deploy` and `agent.stop`, as requests
 * (answered `{ok: true}` once accepted) or as notifications; `agent.estimate`, answered with what the model would take;
 * `agent.log`, with what its engine wrote; `agent.history`, with what its GPUs did in the last hour.
 */
import { z } from "zod";
import { hostProblem } from "./host.ts";
import { ModelId } from "./model-id.ts";

export const PROTOCOL_VERSION = 2;
export const TUNNEL_PATH = "/ws/agent";
export const HEARTBEAT_INTERVAL_MS = 10_000;
/** Either side considers the link dead after this many heartbeat intervals of complete silence. */
export const HEARTBEATS_MISSED_MAX = 3;
export const TEXT_MESSAGE_BYTES_MAX = 1024 * 1024;

/** Close codes of the tunnel's WebSocket, in addition to those of RFC 6455. */
export const CloseCode = {
  /** Another connection with the same token replaced this one. */
  replaced: 4001,
  /** The node was deregistered; its token is no longer valid. */
  deregistered: 4003,
} as const;

export const NAME_CHARS_MAX = 256;
const Name = z.string().max(NAME_CHARS_MAX);
export const MESSAGE_CHARS_MAX = 4096;
const Message = z.string().max(MESSAGE_CHARS_MAX);
const Port = z.int().min(1).max(65_535);
const StreamId = z.string().min(1).max(128);

/** One GPU. A figure that the driver does not report is null, never zero. */
export const GpuReport = z.object({
  index: z.int().min(0),
  name: Name,
  memory_total_mb: z.number().min(0).nullable(),
  memory_used_mb: z.number().min(0).nullable(),
  utilization: z.number().min(0).max(100).nullable(),
  uuid: Name.optional(),
  memory_free_mb: z.number().min(0).nullable().optional(),
  temperature_c: z.number().nullable().optional(),
  power_w: z.number().nullable().optional(),
  driver_version: Name.nullable().optional(),
});
export type GpuReport = z.infer<typeof GpuReport>;

/** What a model is expected to take of the GPUs, in parts; a cache of null is not known and counted as nothing. */
export const Estimate = z.object({
  weights_mb: z.number().min(0),
  cache_mb: z.number().min(0).nullable(),
  overhead_mb: z.number().min(0),
  total_mb: z.number().min(0),
  context_tokens: z.number().min(0).nullable(),
  slots: z.int().min(1),
});
export type Estimate = z.infer<typeof Estimate>;

/** A model that is ready. `api_key` is what its engine requires of callers that dial host:port directly. */
export const ServingModel = z.object({
  model_id: ModelId,
  port: Port,
  engine: Name.optional(),
  api_key: z.string().max(256).optional(),
  /** What its processes hold of the GPUs; absent where the driver does not say. */
  memory_mb: z.number().min(0).optional(),
  estimate: Estimate.optional(),
});
export type ServingModel = z.infer<typeof ServingModel>;

export const DeployStatus = z.enum(["queued", "downloading", "loading", "ready", "failed", "stopped"]);
export type DeployStatus = z.infer<typeof DeployStatus>;

/** A model that is deployed to the node but not ready yet, or not ready again. */
export const PendingModel = z.object({
  model_id: ModelId,
  status: DeployStatus,
  progress: z.number().min(0).max(100),
  stream_id: StreamId.optional(),
  message: Message.optional(),
  estimate: Estimate.optional(),
});
export type PendingModel = z.infer<typeof PendingModel>;

export const GPUS_MAX = 64;
/** Models per node, whatever their status. */
export const MODELS_MAX = 256;
const Gpus = z.array(GpuReport).max(GPUS_MAX);
const ServingModels = z.array(ServingModel).max(MODELS_MAX);
const PendingModels = z.array(PendingModel).max(MODELS_MAX);

const Host = z.string().min(1).max(255);

function checkDialled(host: string, context: z.RefinementCtx, path: string[] = []): void {
  const problem = hostProblem(host);
  if (problem) context.addIssue({ code: "custom", path, message: problem });
}

const HelloFields = z.object({
  version: z.string().max(64),
  host: Host,
  gpus: Gpus,
  models: ServingModels,
  pending: PendingModels.optional(),
  name: Name.optional(),
  protocol: z.int().optional(),
  /** Whether `host` and the models' ports can be dialled; otherwise inference uses the tunnel. */
  direct: z.boolean().optional(),
  /** Whether this node carries inference through the tunnel. */
  tunnel: z.boolean().optional(),
  /** Requests that it takes at once through its tunnel; more wait at the gateway. Not given: what its engines take. */
  streams_max: z.int().min(1).max(1_000_000).optional(),
});
/** A host that is not dialled is only displayed, and may be any text. */
export const HelloParams = HelloFields.superRefine(({ host, direct, tunnel, protocol = 1 }, context) => {
  if (direct !== false) checkDialled(host, context, ["host"]);
  // Frames are not what they were in protocol 1; without the tunnel there are none.
  if (tunnel && protocol < PROTOCOL_VERSION)
    context.addIssue({
      code: "custom",
      path: ["protocol"],
      message: `the node program speaks protocol ${protocol} and the gateway ${PROTOCOL_VERSION}: update the node program`,
    });
});
export type HelloParams = z.infer<typeof HelloParams>;

/** Result of hello. Everything is optional: `{}` or `{ok: true}` is enough. */
export const HelloResult = z.object({
  agent_id: z.string().max(128).optional(),
  protocol: z.int().optional(),
  heartbeat_interval_ms: z.int().min(200).max(60_000).optional(),
});
export type HelloResult = z.infer<typeof HelloResult>;

export const HeartbeatParams = z.object({
  gpus: Gpus,
  models: ServingModels,
  pending: PendingModels.optional(),
});
export type HeartbeatParams = z.infer<typeof HeartbeatParams>;

export const ProgressParams = z.object({
  stream_id: StreamId,
  model_id: ModelId,
  status: DeployStatus,
  progress: z.number().min(0).max(100),
  message: Message.optional(),
  host: Host.superRefine((host, context) => checkDialled(host, context)).optional(),
  port: Port.optional(),
  api_key: z.string().max(256).optional(),
});
export type ProgressParams = z.infer<typeof ProgressParams>;

/** How a model is served, where the node's configuration does not say, or says otherwise. */
export const ServingOptions = z.object({
  gpu_count: z.int().min(1).max(GPUS_MAX).optional().describe("GPUs that it is split over"),
  context_tokens: z.int().min(1).max(100_000_000).optional().describe("Longest prompt and answer together"),
  slots: z.int().min(1).max(100_000).optional().describe("Requests that its engine serves at once"),
});
export type ServingOptions = z.infer<typeof ServingOptions>;

export const DeployParams = ServingOptions.extend({ model_id: ModelId, stream_id: StreamId });
export type DeployParams = z.infer<typeof DeployParams>;

export const EstimateParams = ServingOptions.extend({ model_id: ModelId });
export type EstimateParams = z.infer<typeof EstimateParams>;

/** `room_mb`: what the model could have of the node's GPUs now; null where the driver does not say. */
export const EstimateResult = z.object({
  estimate: Estimate.nullable(),
  room_mb: z.number().nullable(),
  why: Message.optional(),
});
export type EstimateResult = z.infer<typeof EstimateResult>;

/** `gently`: it takes no new requests, and ends when those under way have ended. */
export const StopParams = z.object({ model_id: ModelId, gently: z.boolean().optional() });
export type StopParams = z.infer<typeof StopParams>;

/** Far below what one message may hold. */
const LOG_CHARS_MAX = 128 * 1024;
export const LogParams = z.object({
  model_id: ModelId,
  lines: z.int().min(1).max(1_000).default(100),
});
export type LogParams = z.infer<typeof LogParams>;
/** The last of what a model's engine wrote, without secrets; longer output is cut at its beginning. */
export const LogResult = z.object({ text: z.string().max(LOG_CHARS_MAX) });

/** One point a minute, oldest first: the highest figures that were read in it. */
export const GPU_HISTORY_MAX = 60;
export const GpuHistory = z
  .array(
    z.object({
      minute: z.int().min(0).describe("Minutes since 1970, by the node's clock"),
      gpus: z.array(GpuReport.pick({ index: true, utilization: true, memory_used_mb: true })).max(GPUS_MAX),
    }),
  )
  .max(GPU_HISTORY_MAX);
export type GpuHistory = z.infer<typeof GpuHistory>;

export const AGENT_METHODS = {
  "agent.hello": HelloParams,
  "agent.heartbeat": HeartbeatParams,
  "agent.progress": ProgressParams,
  /** The node is about to stop; answered when its requests have ended and its models are served elsewhere. */
  "agent.drain": z.object({}),
} as const;

export const GATEWAY_METHODS = {
  "agent.deploy": DeployParams,
  "agent.stop": StopParams,
  "agent.estimate": EstimateParams,
  "agent.log": LogParams,
  "agent.history": z.object({}),
} as const;

/**
 * Gateway to node, without params or an answer: this instance stops. The node dials again at once and keeps this
 * connection, on which nothing new begins, until the gateway closes it.
 */
export const LEAVING_METHOD = "agent.leaving";

const RpcId = z.union([z.string().max(128), z.number(), z.null()]);

export const RpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });

/** Any JSON-RPC message of the tunnel: a request has `method`, an answer `result` or `error`. */
export const RpcMessage = z.object({
  jsonrpc: z.literal("2.0"),
  id: RpcId.optional(),
  method: z.string().max(128).optional(),
  params: z.unknown().optional(),
  result: z.unknown().optional(),
  error: RpcError.optional(),
});
export type RpcMessage = z.infer<typeof RpcMessage>;

export const RpcErrorCode = {
  parse: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  application: -32000,
} as const;

/** Parses one text message; null when it is not a JSON-RPC 2.0 object, or too large. */
export function parseRpcMessage(text: string): RpcMessage | null {
  if (text.length > TEXT_MESSAGE_BYTES_MAX) return null;
  try {
    const parsed = RpcMessage.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

/** One line for an error message that names the offending fields. */
export function describeIssues(error: z.ZodError): string {
  return error.issues
    .slice(0, 3)
    .map((issue) => {
      const message =
        issue.code === "invalid_key" ? (issue.issues[0]?.message ?? issue.message) : issue.message;
      return issue.path.length > 0 ? `${issue.path.join(".")}: ${message}` : message;
    })
    .join("; ");
}
