import { DeployStatus, Estimate, GpuReport } from "@model-gateway/protocol/agent.ts";
import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { Timestamp } from "../../kernel/method.ts";
import { backendName } from "./serving.ts";
import { gpuUtilization, NodeState } from "./session.ts";
import type { AgentRow } from "./store.ts";

const AgentModel = z.object({
  model_id: z.string(),
  status: DeployStatus,
  progress: z.number(),
  message: z.string().optional(),
  engine: z.string().optional(),
  port: z.int().optional(),
  memory_mb: z.number().optional().describe("What its engine holds of the GPUs, where the driver says it"),
  estimate: Estimate.optional().describe("What it was expected to take"),
  backend: z.string().nullable().describe("The backend that routes to it; null while it is not ready"),
  via: z
    .enum(["direct", "tunnel"])
    .nullable()
    .describe("How this instance reaches it: at the node's host and port, or through the node's connection"),
});

export const AgentRecord = z.object({
  agent_id: z.string(),
  name: z.string(),
  version: z.string(),
  host: z.string().nullable().describe("As the node last gave it; null before its first connection"),
  online: z.boolean().describe("Whether a heartbeat came within the last 30 seconds"),
  gpus: z.array(GpuReport).describe("Empty while offline, and where there is no GPU"),
  gpu_utilization: z.number().nullable().describe("Percent, mean over the GPUs that report it"),
  draining: NodeState.shape.draining.describe(
    "Set while it is drained; `empty`: it gets no requests any more",
  ),
  models: z.array(AgentModel),
  heartbeat_at: Timestamp.nullable(),
  connected_at: Timestamp.nullable().describe("Null while offline"),
  created_at: Timestamp,
});
export type AgentRecord = z.infer<typeof AgentRecord>;

export function toRecord(
  row: AgentRow,
  state: NodeState | null,
  via: (modelId: string) => "direct" | "tunnel" | null,
): AgentRecord {
  const serving = (state?.models ?? []).map(({ api_key: _, ...model }) => {
    const reached = via(model.model_id);
    const backend = reached && backendName(model.model_id);
    return { ...model, status: "ready" as const, progress: 100, backend, via: reached };
  });
  const pending = (state?.pending ?? []).map(({ stream_id: _, ...model }) => ({
    ...model,
    backend: null,
    via: null,
  }));
  return {
    agent_id: row.id,
    name: row.name,
    version: row.version,
    host: state?.host ?? row.host,
    online: state !== null,
    gpus: state?.gpus ?? [],
    gpu_utilization: state && gpuUtilization(state.gpus),
    ...(state?.draining && { draining: state.draining }),
    models: [...serving, ...pending],
    heartbeat_at: state ? isoTime(state.heartbeatAtMs) : row.last_seen_at,
    connected_at: state && isoTime(state.connectedAtMs),
    created_at: row.created_at,
  };
}
