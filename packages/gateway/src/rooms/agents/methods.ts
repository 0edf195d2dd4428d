import {
  EstimateResult,
  GpuHistory,
  LogParams,
  LogResult,
  ServingOptions,
} from "@model-gateway/protocol/agent.ts";
import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { defineMethod, Timestamp } from "../../kernel/method.ts";
import { hasRoom } from "./fleet.ts";
import { AgentRecord } from "./records.ts";

const AgentId = z.string().min(1).max(128);
const MINUTE_MS = 60_000;
const ADMIN = { auth: "admin", hint: "only administrators manage agent nodes" } as const;

export const list = defineMethod({
  name: "agents.list",
  summary: "Registered agent nodes and their state",
  ...ADMIN,
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
    stream_id: await rooms.agents.deploy(actor.userId, {
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

export const log = defineMethod({
  name: "agents.log",
  summary: "The last lines that a model's engine wrote on a node, without secrets",
  ...ADMIN,
  params: LogParams.extend({ agent_id: AgentId }),
  result: LogResult,
  handler: ({ params: { agent_id, ...params }, rooms }) =>
    rooms.agents.ask(agent_id, { method: "agent.log", params }, LogResult),
});

export const history = defineMethod({
  name: "agents.history",
  summary: "What a node's GPUs did in the last hour, one point a minute",
  ...ADMIN,
  params: z.object({ agent_id: AgentId }),
  result: GpuHistory,
  handler: ({ params: { agent_id }, rooms }) =>
    rooms.agents.ask(agent_id, { method: "agent.history", params: {} }, GpuHistory),
});

const Mode = z.enum(["always", "on_demand", "off"]);
const Minutes = z.number().min(0).max(100_000);
const Replicas = z.int().min(0).max(1_000);

export const serve = defineMethod({
  name: "agents.serve",
  summary: "Have a model served always, on demand, or no more, on whichever nodes have room",
  ...ADMIN,
  params: ServingOptions.extend({
    model_id: ModelId,
    mode: Mode,
    idle_minutes: Minutes.default(10).describe("On demand: it is put away after so long without requests"),
    minimum_minutes: Minutes.default(1).describe(
      "It is neither put away for another, nor started, more often",
    ),
    replicas_min: Replicas.optional().describe("Nodes that serve it at any time; always: 1, on demand: 0"),
    replicas_max: Replicas.optional().describe("Nodes that serve it while calls wait; 1, or the minimum"),
  }),
  handler: async ({ params, actor, rooms }) => {
    const { model_id, mode, idle_minutes, minimum_minutes } = params;
    const isOff = mode === "off";
    const replicas_min = isOff ? 0 : Math.max(mode === "always" ? 1 : 0, params.replicas_min ?? 0);
    await rooms.agents.fleet.set({
      model_id,
      user_id: actor.userId,
      mode,
      idle_ms: isOff ? 0 : Math.round(idle_minutes * MINUTE_MS),
      minimum_ms: Math.round(minimum_minutes * MINUTE_MS),
      replicas_min,
      replicas_max: isOff ? 0 : Math.max(replicas_min, params.replicas_max ?? 1),
      serving: JSON.stringify(ServingOptions.parse(params)),
    });
  },
});

export const served = defineMethod({
  name: "agents.served",
  summary: "The models of agents.serve",
  ...ADMIN,
  result: z.array(
    ServingOptions.extend({
      model_id: z.string(),
      mode: Mode,
      idle_minutes: z.number(),
      minimum_minutes: z.number(),
      replicas_min: z.int(),
      replicas_max: z.int(),
      used_at: Timestamp,
    }),
  ),
  handler: async ({ rooms }) =>
    (await rooms.agents.store.models()).map(({ idle_ms, minimum_ms, serving, used_ms, ...model }) => ({
      ...model,
      idle_minutes: idle_ms / MINUTE_MS,
      minimum_minutes: minimum_ms / MINUTE_MS,
      used_at: isoTime(used_ms),
      ...(JSON.parse(serving) as ServingOptions),
    })),
});

export const drain = defineMethod({
  name: "agents.drain",
  summary: "Before a node goes: its models start elsewhere, it gets no new requests, and those under way end",
  ...ADMIN,
  params: z.object({
    agent_id: AgentId,
    draining: z.boolean().default(true).describe("false: it serves again"),
  }),
  handler: ({ params, rooms }) => rooms.agents.drain(params.agent_id, params.draining),
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
