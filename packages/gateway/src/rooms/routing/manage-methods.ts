import { z } from "zod";
import { AUTHS, CHAT_LIMIT_FIELDS, DIALECTS } from "../../backends/contract.ts";
import { isoTime } from "../../kernel/clock.ts";
import { defineMethod, NoParams, Ok } from "../../kernel/method.ts";
import { LostCacheShare, type LostCaches } from "../usage/index.ts";
import { type Entry, modelsOf } from "./entry.ts";
import { aliasField, Health, healthOf, Registration } from "./routes.ts";

const hint = "backends are for administrators";
const MODELS_SHOWN_MAX = 1_000;

const Name = z.string().trim().min(1).max(64);
const Managed = Health.extend({
  enabled: z.boolean(),
  editable: z.boolean().describe("False: it was not registered by hand, such as a model on a node"),
  has_key: z.boolean(),
  refused_keys: z
    .array(z.object({ ends_with: z.string(), until: z.string() }))
    .describe("Keys that this instance does not use for now, because the server refused them"),
  dialects: z.array(z.enum(DIALECTS)).describe("As registered; none: as seen, or by its host"),
  auth: z.enum(AUTHS).nullable(),
  limit_field: z.enum(CHAT_LIMIT_FIELDS).nullable(),
  id_prefix: z.string().nullable(),
  header_names: z.array(z.string()),
  set: z.record(z.string(), z.unknown()),
  drop: z.array(z.string()),
  believe_cost: z.boolean(),
  lost_cache_share: LostCacheShare,
  listed_models: z.array(z.string()).describe("As registered, beside those that it lists itself"),
  model_ids: z.array(z.string()).describe("What it serves, as far as it was asked"),
});

function managed(entry: Entry, nowMs: number, lostCaches: LostCaches): z.input<typeof Managed> {
  const { config, backend } = entry;
  return {
    ...healthOf(entry, nowMs),
    enabled: config.enabled ?? true,
    editable: entry.persisted,
    has_key: config.apiKey !== null,
    refused_keys: (backend.refusedKeys?.() ?? []).map(({ endsWith, untilMs }) => ({
      ends_with: endsWith,
      until: isoTime(untilMs),
    })),
    dialects: [...(config.dialects ?? [])],
    auth: config.auth ?? null,
    limit_field: config.limit_field ?? null,
    id_prefix: config.id_prefix ?? null,
    header_names: Object.keys(config.headers ?? {}),
    set: { ...config.set },
    drop: [...(config.drop ?? [])],
    believe_cost: config.believe_cost ?? false,
    lost_cache_share: lostCaches.get(config.name) ?? null,
    listed_models: [...config.models],
    model_ids: modelsOf(entry)
      .slice(0, MODELS_SHOWN_MAX)
      .map(({ id }) => id),
  };
}

export const listBackends = defineMethod({
  name: "backends.list",
  summary: "Backends with their health, circuits and models",
  auth: "admin",
  audit: false,
  hint,
  params: NoParams,
  result: z.object({ backends: z.array(Managed), models: z.array(z.string()).describe("Callable now") }),
  handler: async ({ rooms: { routing, usage } }) => {
    const nowMs = routing.options.clock.now();
    const lost = await usage.lostCaches();
    return {
      backends: routing.entries.map((entry) => managed(entry, nowMs, lost)),
      models: routing.callableModels().map(({ id }) => id),
    };
  },
});

const Given = Registration.omit({ workflow: true });

export const addBackend = defineMethod({
  name: "backends.add",
  summary: "Register a backend; its models can be called as soon as it answers a probe",
  auth: "admin",
  hint,
  params: Given,
  result: z.object({ name: z.string() }),
  handler: async ({ params: { api_key, ...fields }, rooms: { routing } }) => {
    routing.refuseTaken(fields);
    const { config } = await routing.register({ ...fields, apiKey: api_key });
    return { name: config.name };
  },
});

export const updateBackend = defineMethod({
  name: "backends.update",
  summary: "Change a backend; what is left out stays. A disabled one gets no requests",
  auth: "admin",
  hint,
  params: Given.omit({ name: true }).extend({ name: Name, enabled: z.boolean().optional() }),
  result: z.object({ name: z.string() }),
  handler: async ({ params: { name, api_key, ...fields }, rooms }) => {
    const { config } = await rooms.routing.update(name, { ...fields, apiKey: api_key });
    return { name: config.name };
  },
});

export const testBackend = defineMethod({
  name: "backends.test",
  summary: "Ask a server that is not registered whether it answers, and for its models; spends no tokens",
  auth: "admin",
  audit: false,
  hint,
  params: Given,
  result: z.object({
    ok: z.boolean(),
    detail: z.string().nullable().describe("Why not"),
    latency_ms: z.number().nullable(),
    models: z.array(z.string()).describe("The first 1,000"),
  }),
  handler: async ({ params: { api_key, ...fields }, rooms }) => {
    const { state, detail, models, latencyMs } = await rooms.routing.test({ ...fields, apiKey: api_key });
    return {
      ok: state === "Healthy",
      detail: detail ?? null,
      latency_ms: latencyMs,
      models: models.slice(0, MODELS_SHOWN_MAX).map(({ id }) => id),
    };
  },
});

export const probeBackend = defineMethod({
  name: "backends.probe",
  summary: "Probe a backend now instead of at the next minute",
  auth: "admin",
  audit: false,
  hint,
  params: z.object({ name: Name }),
  result: Ok,
  handler: ({ params, rooms }) => rooms.routing.probeNow(params.name),
});

export const removeBackend = defineMethod({
  name: "backends.remove",
  summary: "Remove a backend; nothing is sent to it any more",
  auth: "admin",
  hint,
  params: z.object({ name: Name }),
  result: z.object({ removed: z.boolean() }),
  handler: async ({ params, rooms }) => ({ removed: await rooms.routing.removeNamed(params.name) }),
});

export const listAliases = defineMethod({
  name: "aliases.list",
  summary: "Other names of models, sorted",
  auth: "admin",
  audit: false,
  hint,
  params: NoParams,
  result: z.array(z.object({ alias: z.string(), target: z.string() })),
  handler: ({ rooms: { routing } }) => routing.aliases.list(),
});

export const setAlias = defineMethod({
  name: "aliases.set",
  summary: "Let a model be called by another name; in memory only",
  auth: "admin",
  hint,
  params: z.object({ alias: aliasField("alias"), target: aliasField("target") }),
  result: Ok,
  handler: ({ params, rooms: { routing } }) => {
    routing.aliases.set(params.alias, params.target);
  },
});

export const removeAlias = defineMethod({
  name: "aliases.remove",
  summary: "Remove an alias; also succeeds when there is none",
  auth: "admin",
  hint,
  params: z.object({ alias: aliasField("alias") }),
  result: Ok,
  handler: ({ params, rooms: { routing } }) => {
    routing.aliases.remove(params.alias);
  },
});
