import { z } from "zod";
import { CAPABILITIES } from "../../backends/contract.ts";
import { fail } from "../../kernel/errors.ts";
import { decodeUtf8, isObject, parseJson } from "../../kernel/json.ts";
import { defineRoute, type RouteCall } from "../../kernel/route.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import { validate } from "../../kernel/validate.ts";
import type { Entry } from "./entry.ts";

const BODY_BYTES_MAX = 1024 * 1024;
const MODEL_ID_LENGTH_MAX = 256;
const MODEL_ID = z.string().trim().min(1).max(MODEL_ID_LENGTH_MAX);

const Registration = z.object({
  type: z.string().trim().min(1).max(64).optional().describe("A kind, or an engine's name such as vllm"),
  url: z.string().trim().min(1).max(2_048).optional(),
  api_key: z.string().max(4_096).nullish().describe("Sent as bearer on upstream calls"),
  name: z.string().trim().min(1).max(64).optional().describe("Provider hint; the same name replaces"),
  models: z.array(MODEL_ID).max(1_000).optional(),
  capabilities: z.array(z.enum(CAPABILITIES)).optional(),
  workflow: z.record(z.string(), z.unknown()).nullish().describe("Legacy; read by no backend"),
});

const Health = z.object({
  label: z.string().describe("backend_<index>:<kind>"),
  state: z.enum(["Healthy", "Degraded", "Unhealthy"]),
  name: z.string(),
  type: z.string(),
  url: z.string(),
  models: z.int(),
  requests: z.int(),
  circuit: z.object({
    state: z.enum(["closed", "open", "half_open"]),
    consecutive_failures: z.int(),
    cause: z.string().nullable(),
    retry_at: z.string().nullable(),
  }),
  last_error: z.string().nullable(),
  probed_at: z.string().nullable(),
  implausible_usage: z
    .object({ count: z.int(), problem: z.string(), request_id: z.string(), at: z.string() })
    .nullable()
    .describe("Usage that the model cannot have had, as this backend reported it; the newest case"),
});

const Done = z.object({ status: z.literal("ok"), message: z.string() });
const done = (message: string) => ({ status: "ok" as const, message });

/** The body as an object; an empty one is `{}`, because every field may be absent. */
async function readFields({ request }: RouteCall): Promise<Record<string, unknown>> {
  const text = decodeUtf8(await request.body(BODY_BYTES_MAX));
  const value = text.trim() === "" ? {} : parseJson(text);
  return isObject(value) ? value : fail("invalid_request", "The body must be a JSON object");
}

function healthOf(entry: Entry, index: number, nowMs: number): z.output<typeof Health> {
  const { config, state, detail, circuit, discovered, requests, probedAtMs, suspicion } = entry;
  const report = circuit.report(nowMs);
  return {
    label: `backend_${index}:${config.kind}`,
    state,
    name: config.name,
    type: config.type,
    url: shownUrl(config.url),
    models: new Set([...config.models, ...discovered.map(({ id }) => id)]).size,
    requests,
    circuit: report,
    last_error: detail ?? report.cause,
    probed_at: probedAtMs === null ? null : new Date(probedAtMs).toISOString(),
    implausible_usage: suspicion && {
      count: suspicion.count,
      problem: suspicion.problem,
      request_id: suspicion.requestId,
      at: new Date(suspicion.atMs).toISOString(),
    },
  };
}

export const registerBackend = defineRoute({
  method: "POST",
  path: "/api/admin/backends",
  summary: "Register a backend, or replace the one of the same name",
  auth: "admin_token",
  body: Registration,
  response: Done.extend({ name: z.string(), index: z.int() }),
  handler: async (call) => {
    const { api_key, ...fields } = validate(Registration, await readFields(call), "missing_fields");
    const { routing } = call.rooms;
    const entry = await routing.register({ ...fields, apiKey: api_key });
    return { ...done("backend added"), name: entry.config.name, index: routing.entries.indexOf(entry) };
  },
});

export const listBackends = defineRoute({
  method: "GET",
  path: "/api/admin/backends",
  summary: "Backends with their health and circuits, and every routable model id",
  auth: "admin_token",
  response: z.object({
    backends: z.object({ count: z.int().describe("Healthy ones"), health: z.array(Health) }),
    models: z.array(z.string()),
  }),
  handler: ({ rooms: { routing } }) => {
    const nowMs = routing.options.clock.now();
    return {
      backends: {
        count: routing.healthyCount,
        health: routing.entries.map((entry, index) => healthOf(entry, index, nowMs)),
      },
      models: routing.routableModels().map(({ id }) => id),
    };
  },
});

export const removeBackend = defineRoute({
  method: "DELETE",
  path: "/api/admin/backends",
  summary: "Remove the backend with this registration index",
  auth: "admin_token",
  body: z.object({ index: z.int() }),
  response: Done,
  handler: async (call) => {
    const { index } = await readFields(call);
    if (!Number.isInteger(index)) fail("missing_index", "Missing 'index' field");
    await call.rooms.routing.removeAt(index as number);
    return done("backend removed");
  },
});

const textField = (fields: Record<string, unknown>, name: "alias" | "target"): string => {
  const value = fields[name];
  const kind = name === "alias" ? "missing_alias" : "missing_target";
  if (typeof value !== "string" || value.trim() === "") return fail(kind, `Missing '${name}' field`);
  if (value.trim().length > MODEL_ID_LENGTH_MAX)
    fail(kind, `'${name}' may have at most ${MODEL_ID_LENGTH_MAX} characters, like every model id`);
  return value.trim();
};

export const addAlias = defineRoute({
  method: "POST",
  path: "/api/admin/aliases",
  summary: "Let a model be called by another name; in memory only",
  auth: "admin_token",
  body: z.object({ alias: z.string(), target: z.string() }),
  response: Done,
  handler: async (call) => {
    const fields = await readFields(call);
    call.rooms.routing.aliases.set(textField(fields, "alias"), textField(fields, "target"));
    return done("alias added");
  },
});

export const listAliases = defineRoute({
  method: "GET",
  path: "/api/admin/aliases",
  summary: "All aliases, sorted",
  auth: "admin_token",
  response: z.array(z.object({ alias: z.string(), target: z.string() })),
  handler: ({ rooms: { routing } }) => routing.aliases.list(),
});

export const removeAlias = defineRoute({
  method: "DELETE",
  path: "/api/admin/aliases",
  summary: "Remove an alias; also succeeds when there is none",
  auth: "admin_token",
  body: z.object({ alias: z.string() }),
  response: Done,
  handler: async (call) => {
    call.rooms.routing.aliases.remove(textField(await readFields(call), "alias"));
    return done("alias removed");
  },
});
