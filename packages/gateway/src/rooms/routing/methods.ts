import { z } from "zod";
import { AUTHS, CHAT_LIMIT_FIELDS, DIALECTS, type Trial } from "../../backends/contract.ts";
import { isoTime } from "../../kernel/clock.ts";
import { defineMethod } from "../../kernel/method.ts";
import { LostCacheShare, type LostCaches } from "../usage/index.ts";
import { type Entry, modelsOf } from "./entry.ts";
import { agentsOf } from "./first-contact.ts";
import { TARGETS_MAX } from "./model-routes.ts";
import { backendsProgress } from "./notifications.ts";
import { registrationForm } from "./registration.ts";
import { Health, healthOf, MODEL_ID, Name, Registration } from "./routes.ts";

const ADMIN = { auth: "admin", hint: "backends are for administrators" } as const;
const MODELS_SHOWN_MAX = 1_000;

const Agent = z.object({ name: z.string(), ok: z.boolean(), detail: z.string() });
const SeenShape = z.object({
  dialects: z.array(z.enum(DIALECTS)),
  auth: z.enum(AUTHS).optional(),
  limit_field: z.enum(CHAT_LIMIT_FIELDS).optional(),
  id_prefix: z.string().max(64).optional(),
  model: z.string().max(256).nullable().describe("The model that was asked"),
  trials: z
    .array(z.object({ name: z.string().max(64), ok: z.boolean(), detail: z.string().max(512) }))
    .max(32),
  prompt_tokens: z.int(),
  completion_tokens: z.int().describe("Not charged to anybody here"),
  at: z.string().max(32),
});
const Managed = Health.extend({
  enabled: z.boolean(),
  editable: z.boolean().describe("False: it was not registered by hand, such as a model on a node"),
  has_key: z.boolean(),
  refused_keys: z
    .array(z.object({ ends_with: z.string(), until: z.string() }))
    .describe("Keys that are not used for now, because the server refused them"),
  dialects: z.array(z.enum(DIALECTS)).describe("As registered; none: as seen, or by its host"),
  auth: z.enum(AUTHS).nullable(),
  limit_field: z.enum(CHAT_LIMIT_FIELDS).nullable(),
  id_prefix: z.string().nullable(),
  header_names: z.array(z.string()),
  set: z.record(z.string(), z.unknown()),
  drop: z.array(z.string()),
  believe_cost: z.boolean(),
  tool_prices: z.record(z.string(), z.number()),
  shared_files: z.boolean(),
  batches: z.boolean(),
  lost_cache_share: LostCacheShare,
  seen: SeenShape.nullable().describe("What its test has shown"),
  agents: z.array(Agent).describe("Which coding agents can work with it, by that"),
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
    refused_keys: (backend.keys?.refused() ?? []).map(({ endsWith, untilMs }) => ({
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
    tool_prices: { ...config.tool_prices },
    shared_files: config.shared_files ?? false,
    batches: config.batches ?? false,
    lost_cache_share: lostCaches.get(config.name) ?? null,
    seen: config.seen ?? null,
    agents: config.seen ? agentsOf(config.seen) : [],
    listed_models: [...config.models],
    model_ids: modelsOf(entry)
      .slice(0, MODELS_SHOWN_MAX)
      .map(({ id }) => id),
  };
}

export const listBackends = defineMethod({
  name: "backends.list",
  summary: "Backends with their health, circuits and models",
  ...ADMIN,
  result: z.object({ backends: z.array(Managed), models: z.array(z.string()).describe("Callable now") }),
  handler: async ({ rooms: { routing, usage } }) => {
    const nowMs = routing.options.clock.now();
    const lost = await usage.cacheWatch.lost();
    return {
      backends: routing.entries.map((entry) => managed(entry, nowMs, lost)),
      models: routing.callableModels().map(({ id }) => id),
    };
  },
});

const Given = Registration.omit({ workflow: true });
const seen = SeenShape.nullish().describe("As a test has answered; left out: it is tested, null: it is not");

export const addBackend = defineMethod({
  name: "backends.add",
  summary: "Test a backend and register it; its models can be called as soon as it answers a probe",
  ...ADMIN,
  params: Given.extend({ enabled: z.boolean().optional(), seen }),
  result: z.object({ name: z.string() }),
  handler: async ({ params: { api_key, ...fields }, rooms: { routing } }) => {
    const { config } = await routing.add({ ...fields, apiKey: api_key });
    return { name: config.name };
  },
});

export const updateBackend = defineMethod({
  name: "backends.update",
  summary: "Change a backend; what is left out stays. A disabled one gets no requests",
  ...ADMIN,
  params: Given.omit({ name: true }).extend({ name: Name, enabled: z.boolean().optional(), seen }),
  result: z.object({ name: z.string() }),
  handler: async ({ params: { name, api_key, ...fields }, rooms }) => {
    const { config } = await rooms.routing.update(name, { ...fields, apiKey: api_key });
    return { name: config.name };
  },
});

export const testBackend = defineMethod({
  name: "backends.test",
  summary:
    "Try a server with some short requests: listing by each way of sending the key, each dialect, streams, tools, cache. Nobody is charged",
  ...ADMIN,
  notifies: ["backends.progress"],
  params: Given.extend({
    name: Name.optional().describe("Of a registered one: what is left out is as it is there, its key too"),
    model: MODEL_ID.nullish().describe("Which model is asked; left out: a cheap one"),
    stream_id: z.uuid().optional().describe("Chosen by the caller: each trial is notified there as it ends"),
  }),
  result: z.object({
    ok: z.boolean(),
    detail: z.string().nullable().describe("Why not"),
    latency_ms: z.number().nullable(),
    models: z.array(z.string()).describe("The first 1,000"),
    seen: SeenShape.nullable().describe("For `backends.add`; null: there is nothing to try but a probe"),
    agents: z.array(Agent),
  }),
  handler: async ({ params: { api_key, model, stream_id, ...fields }, actor, rooms: { routing } }) => {
    const progress = stream_id === undefined ? null : routing.options.events.open(actor, stream_id);
    const tell = (trial: Trial) => progress?.emit(backendsProgress, { stream_id: stream_id!, ...trial });
    try {
      const given = { ...fields, apiKey: api_key };
      const { latencyMs, models, ...tested } = await routing.test(given, { model, tell });
      return {
        ...tested,
        latency_ms: latencyMs,
        models: models.slice(0, MODELS_SHOWN_MAX),
        agents: tested.seen ? agentsOf(tested.seen) : [],
      };
    } finally {
      progress?.end();
    }
  },
});

export const probeBackend = defineMethod({
  name: "backends.probe",
  summary: "Probe a backend now instead of at the next minute",
  ...ADMIN,
  params: z.object({
    name: Name,
    resume: z.boolean().optional().describe("Also send it requests again, as if none had failed"),
  }),
  handler: ({ params, rooms }) => rooms.routing.probeNow(params.name, params),
});

export const removeBackend = defineMethod({
  name: "backends.remove",
  summary: "Remove a backend; nothing is sent to it any more",
  ...ADMIN,
  params: z.object({ name: Name }),
  result: z.object({ removed: z.boolean() }),
  handler: async ({ params, rooms }) => ({ removed: await rooms.routing.removeNamed(params.name) }),
});

const Field = z.object({
  name: z
    .enum([
      "url",
      "name",
      "api_key",
      "models",
      "dialects",
      "auth",
      "limit_field",
      "id_prefix",
      "headers",
      "set",
      "drop",
      "fields",
      "tool_prices",
    ])
    .describe("Of `POST /api/admin/backends`"),
  label: z.string(),
  input: z.enum(["text", "password", "list", "members"]),
  choices: z.array(z.string()).optional(),
  required: z.boolean(),
  is_more: z.boolean().describe("For the few that need it"),
  placeholder: z.string().optional(),
  hint: z.string(),
});

export const types = defineMethod({
  name: "backends.types",
  summary: "What backends can be registered, and what a form asks for",
  auth: "jwt",
  result: z.object({
    default_type: z.string(),
    types: z.array(
      z.object({ type: z.string(), kind: z.string(), label: z.string(), fields: z.array(Field) }),
    ),
  }),
  handler: ({ rooms }) => registrationForm(rooms.routing.options.factory),
});

const ROUTE_ADMIN = { auth: "admin", hint: "only administrators manage model routes" } as const;
const Target = z.object({
  model: MODEL_ID.describe("As a backend lists it; aliases and other routes are not followed"),
  backend: Name.nullish().describe("Only this backend, or backends of this kind"),
  order: z.int().min(1).max(100).default(1).describe("Lower ones are tried first"),
  weight: z.int().min(1).max(1_000).default(1).describe("Share of the calls among those of the same order"),
});
const RouteSettings = z.object({
  name: MODEL_ID.describe("The model id that clients call"),
  targets: z.array(Target).min(1).max(TARGETS_MAX),
  begin_within_seconds: z
    .number()
    .min(0.1)
    .max(600)
    .nullish()
    .describe("A target that has not begun to answer by then gives way to the next"),
});

const ListedTarget = Target.extend({
  backends: z
    .array(
      z.object({ name: z.string(), serving: z.boolean().describe("Healthy, and its circuit is closed") }),
    )
    .describe("Backends that list the model; none: a call passes this target over"),
});

export const listRoutes = defineMethod({
  name: "routes.list",
  summary: "Model routes: names that several targets serve, and which backends stand behind each target now",
  ...ROUTE_ADMIN,
  result: z.array(RouteSettings.extend({ targets: z.array(ListedTarget) })),
  handler: ({ rooms: { routing } }) =>
    routing.routes.list().map(({ name, targets, beginWithinMs }) => ({
      name,
      targets: targets.map((target) => ({ ...target, backends: routing.router.backendsOf(target) })),
      begin_within_seconds: beginWithinMs === null ? null : beginWithinMs / 1000,
    })),
});

export const setRoute = defineMethod({
  name: "routes.set",
  summary: "Let several targets serve one name, with order and weights; replaces the route of that name",
  ...ROUTE_ADMIN,
  params: RouteSettings,
  handler: ({ params: { name, targets, begin_within_seconds: seconds }, rooms }) =>
    rooms.routing.routes.set({
      name,
      targets: targets.map((target) => ({ ...target, backend: target.backend ?? null })),
      beginWithinMs: seconds == null ? null : Math.round(seconds * 1000),
    }),
});

export const deleteRoute = defineMethod({
  name: "routes.delete",
  summary: "Delete a model route",
  ...ROUTE_ADMIN,
  params: z.object({ name: MODEL_ID }),
  handler: ({ params, rooms }) => rooms.routing.routes.remove(params.name),
});
