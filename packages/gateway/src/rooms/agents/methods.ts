import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { z } from "zod";
import { defineMethod, NoParams, Ok } from "../../kernel/method.ts";
import { AgentRecord } from "./records.ts";

const AgentId = z.string().min(1).max(128);
const hint = "only administrators manage agent nodes";

export const list = defineMethod({
  name: "agents.list",
  summary: "Registered agent nodes and their state",
  auth: "admin",
  hint,
  params: NoParams,
  result: z.array(AgentRecord),
  handler: ({ rooms }) => rooms.agents.list(),
});

export const register = defineMethod({
  name: "agents.register",
  summary: "Register a node; its token is shown once",
  auth: "admin",
  hint,
  params: z.object({ machine_name: z.string().trim().min(1).max(128), version: z.string().max(64) }),
  result: z.object({
    agent_id: z.string(),
    token: z.string().describe("For the node program, in AGENT_TOKEN or a file; it cannot be shown again"),
  }),
  handler: ({ params, rooms }) =>
    rooms.agents.register({ name: params.machine_name, version: params.version }),
});

export const deregister = defineMethod({
  name: "agents.deregister",
  summary: "Remove a node: its token becomes invalid and its connection ends at once",
  auth: "admin",
  hint,
  params: z.object({ agent_id: AgentId }),
  result: Ok,
  handler: ({ params, rooms }) => rooms.agents.deregister(params.agent_id),
});

export const status = defineMethod({
  name: "agents.status",
  summary: "One node: GPUs, models, utilisation, last heartbeat",
  auth: "admin",
  hint,
  params: z.object({ agent_id: AgentId }),
  result: AgentRecord,
  handler: ({ params, rooms }) => rooms.agents.status(params.agent_id),
});

export const deploy = defineMethod({
  name: "agents.deploy",
  summary:
    "Deploy a model on a node, by default on the least-loaded one that is online; a node serves nothing else",
  auth: "admin",
  hint,
  notifies: ["models.progress"],
  params: z.object({
    model_id: ModelId,
    agent_id: z.string().max(128).nullish().describe("Empty or missing: the least-loaded node"),
    beside_backends: z
      .boolean()
      .optional()
      .describe(
        "Serve the model also while a registered backend serves it; without it that backend has it alone",
      ),
  }),
  result: z.object({ ok: z.literal(true), stream_id: z.string() }),
  handler: async ({ params, actor, rooms }) => ({
    ok: true as const,
    stream_id: await rooms.agents.deploy(actor, {
      modelId: params.model_id,
      agentId: params.agent_id || undefined,
      besideBackends: params.beside_backends ?? false,
    }),
  }),
});

export const stop = defineMethod({
  name: "agents.stop",
  summary: "Stop a model on a node; its backend is gone when the answer comes",
  auth: "admin",
  hint,
  params: z.object({ agent_id: AgentId, model_id: ModelId }),
  result: z.object({ ok: z.literal(true), stream_id: z.null() }),
  handler: async ({ params, rooms }) => {
    await rooms.agents.stop(params.agent_id, params.model_id);
    return { ok: true as const, stream_id: null };
  },
});
