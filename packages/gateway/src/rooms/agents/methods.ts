import { EstimateResult, ServingOptions } from "@model-gateway/protocol/agent.ts";
import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { z } from "zod";
import { defineMethod, NoParams, Ok } from "../../kernel/method.ts";
import { hasRoom } from "./placement.ts";
import { AgentRecord } from "./records.ts";

const AgentId = z.string().min(1).max(128);
const ADMIN = { auth: "admin", hint: "only administrators manage agent nodes" } as const;

export const list = defineMethod({
  name: "agents.list",
  summary: "Registered agent nodes and their state",
  ...ADMIN,
  params: NoParams,
  result: z.array(AgentRecord),
  handler: ({ rooms }) => rooms.agents.list(),
});

export const register = defineMethod({
  name: "agents.register",
  summary: "Register a node; its token is shown once",
  ...ADMIN,
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
  ...ADMIN,
  params: z.object({ agent_id: AgentId }),
  result: Ok,
  handler: ({ params, rooms }) => rooms.agents.deregister(params.agent_id),
});

export const status = defineMethod({
  name: "agents.status",
  summary: "One node: GPUs, models, utilisation, last heartbeat",
  ...ADMIN,
  params: z.object({ agent_id: AgentId }),
  result: AgentRecord,
  handler: ({ params, rooms }) => rooms.agents.status(params.agent_id),
});

export const deploy = defineMethod({
  name: "agents.deploy",
  summary:
    "Deploy a model on a node, by default on the one where most memory is left with it; a node serves nothing else",
  ...ADMIN,
  notifies: ["models.progress"],
  params: ServingOptions.extend({
    model_id: ModelId,
    agent_id: z.string().max(128).nullish().describe("Empty or missing: the node with the most room"),
    beside_backends: z.boolean().optional().describe("Also while a registered backend serves the model"),
  }),
  result: z.object({ ok: z.literal(true), stream_id: z.string() }),
  handler: async ({ params, actor, rooms }) => ({
    ok: true as const,
    stream_id: await rooms.agents.deploy(actor, {
      modelId: params.model_id,
      agentId: params.agent_id || undefined,
      besideBackends: params.beside_backends ?? false,
      serving: ServingOptions.parse(params),
    }),
  }),
});

export const fits = defineMethod({
  name: "agents.fits",
  summary: "What a model would take of each node that is online, and whether there is room; the best first",
  ...ADMIN,
  params: ServingOptions.extend({ model_id: ModelId }),
  result: z.array(EstimateResult.extend({ agent_id: z.string(), name: z.string(), fits: z.boolean() })),
  handler: async ({ params: { model_id, ...serving }, rooms }) =>
    (await rooms.agents.fits(model_id, serving)).map(({ state, reserved: _, ...fit }) => ({
      ...{ agent_id: state.agentId, name: state.name, fits: hasRoom(fit) },
      ...fit,
    })),
});

export const stop = defineMethod({
  name: "agents.stop",
  summary: "Stop a model on a node; its backend is gone when the answer comes",
  ...ADMIN,
  params: z.object({ agent_id: AgentId, model_id: ModelId }),
  result: z.object({ ok: z.literal(true), stream_id: z.null() }),
  handler: async ({ params, rooms }) => {
    await rooms.agents.stop(params.agent_id, params.model_id);
    return { ok: true as const, stream_id: null };
  },
});
