import { z } from "zod";
import { AUTHS, CAPABILITIES, CHAT_LIMIT_FIELDS, DIALECTS } from "../../backends/contract.ts";
import { wholeNumber } from "../../kernel/method.ts";
import { MODEL_ID_LENGTH_MAX } from "../../kernel/request-row.ts";
import { defineRoute } from "../../kernel/route.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import { recordOf } from "../../kernel/validate.ts";
import type { Entry } from "./entry.ts";

const BODY_BYTES_MAX = 1024 * 1024;
export const MODEL_ID = z.string().trim().min(1).max(MODEL_ID_LENGTH_MAX);
export const Name = z.string().trim().min(1).max(64);

/** `""`: the body is not an object. */
const BODY_ERRORS = { "": "invalid_request" } as const;
const NOT_AN_OBJECT = "The body must be a JSON object";

const FIELDS_MAX = 32;
/** Fields that the gateway sets, or that metering depends on. */
const OWN_FIELDS =
  /^(model|messages|input|contents|stream|stream_options|n|best_of|options|extra|generationConfig|num_predict|max_\w*tokens)$/;
const FieldName = z
  .string()
  .min(1)
  .max(64)
  .refine((name) => !OWN_FIELDS.test(name), "the gateway sets this field itself");
const HeaderName = z
  .string()
  .max(128)
  .regex(/^[\w!#$%&'*+.^`|~-]+$/, "is not the name of a header")
  .refine(
    (name) =>
      !/^(host|connection|content-(length|type|encoding)|accept-encoding|transfer-encoding)$/i.test(name),
    "the gateway sets this header itself",
  );
const few = <Value extends z.ZodType>(name: z.ZodString, value: Value) => recordOf(FIELDS_MAX, name, value);

/** Null: as its test has shown, or the default. */
const Settings = {
  dialects: z
    .array(z.enum(DIALECTS))
    .min(1)
    .nullish()
    .describe("Chat APIs that its server speaks, the one for chats first; left out: by its host"),
  auth: z.enum(AUTHS).nullish().describe("How the key is sent"),
  limit_field: z.enum(CHAT_LIMIT_FIELDS).nullish().describe("The field that limits a chat's answer"),
  id_prefix: z.string().max(64).nullish().describe("What its server wants before every model id"),
  headers: few(
    HeaderName,
    z
      .string()
      .max(4_096)
      .regex(/^[^\r\n\0]*$/, "must be on one line"),
  )
    .nullish()
    .describe("Sent with every request; never shown again"),
  set: few(FieldName, z.unknown()).nullish().describe("Fields of every request's body that are set"),
  drop: z.array(FieldName).max(FIELDS_MAX).nullish().describe("Fields that are taken out of it"),
  believe_cost: z
    .boolean()
    .nullish()
    .describe("Charge what it reports as its own cost (`usage.cost`, as OpenRouter does), not by the token"),
  tool_prices: few(FieldName, z.number().min(0).max(1_000))
    .nullish()
    .describe("Dollars for a call of each of the vendor's own tools; others are refused to those who pay"),
  batches: z.boolean().nullish().describe("Lines of batches may run on it; on nodes they always may"),
  shared_files: z
    .boolean()
    .nullish()
    .describe("Requests may name files, containers and caches of the account, which all users share"),
  fields: z
    .array(z.string().min(1).max(64))
    .max(FIELDS_MAX)
    .nullish()
    .describe(
      "Of images, sounds, rankings, moderations, videos and voice: fields that pass besides the known ones",
    ),
};

export const Registration = z.object(
  {
    type: Name.optional().describe("A kind, or an engine's name such as vllm"),
    url: z.string().trim().min(1).max(2_048).optional(),
    api_key: z
      .string()
      .max(32_768)
      .nullish()
      .describe(
        "Several, with commas between, are used in turn; or the key file of a Google service account",
      ),
    name: Name.optional().describe("Provider hint; the same name replaces"),
    models: z.array(MODEL_ID).max(1_000).optional(),
    capabilities: z.array(z.enum(CAPABILITIES)).optional(),
    ...Settings,
    concurrency: z
      .int()
      .min(1)
      .max(10_000)
      .optional()
      .describe("Calls that it takes at once, e.g. the slots of llama.cpp; more wait in a bounded queue"),
    workflow: z.looseObject({}).nullish().describe("Legacy; read by no backend"),
  },
  NOT_AN_OBJECT,
);

export const Health = z.object({
  label: z.string().describe("backend_<index>:<kind>"),
  index: z.int().describe("Its registration index, which no other backend gets"),
  state: z.enum(["Healthy", "Degraded", "Unhealthy"]),
  name: z.string(),
  type: z.string(),
  url: z.string(),
  models: z.int(),
  requests: z.int(),
  in_flight: z.int().describe("Calls under way on this instance"),
  concurrency: z.int().nullable(),
  own_hardware: z.boolean().describe("Its models are not billed unless they are given a price"),
  circuit: z.object({
    state: z.enum(["closed", "open", "half_open"]),
    consecutive_failures: z.int(),
    cause: z.string().nullable(),
    retry_at: z.string().nullable(),
    model: z.string().nullable().describe("The model whose calls fail; null: any model"),
    for_all: z.boolean().describe("False: calls of one payer are kept away, whose own have failed"),
  }),
  last_error: z.string().nullable(),
  probed_at: z.string().nullable(),
  implausible_usage: z
    .object({ count: z.int(), problem: z.string(), request_id: z.string(), at: z.string() })
    .nullable()
    .describe("The latest implausible usage that this backend reported"),
});

const Done = z.object({ status: z.literal("ok"), message: z.string() });
const done = (message: string) => ({ status: "ok" as const, message });

export function healthOf(entry: Entry, nowMs: number): z.output<typeof Health> {
  const { config, index, state, detail, circuits, discovered, requests, probedAtMs, suspicion } = entry;
  const report = circuits.report(nowMs);
  return {
    label: `backend_${index}:${config.kind}`,
    index,
    state,
    name: config.name,
    type: config.type,
    url: shownUrl(config.url),
    models: new Set([...config.models, ...discovered.map(({ id }) => id)]).size,
    requests,
    in_flight: entry.inFlight,
    concurrency: config.concurrency ?? null,
    own_hardware: entry.isOwn,
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
  bodyBytesMax: BODY_BYTES_MAX,
  invalid: BODY_ERRORS,
  response: Done.extend({ name: z.string(), index: z.int() }),
  handler: async ({ body: { api_key, ...fields }, rooms: { routing } }) => {
    const entry = await routing.register({ ...fields, apiKey: api_key });
    return { ...done("backend added"), name: entry.config.name, index: entry.index };
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
        count: routing.entries.filter(({ state }) => state === "Healthy").length,
        health: routing.entries.map((entry) => healthOf(entry, nowMs)),
      },
      models: routing.callableModels().map(({ id }) => id),
    };
  },
});

export const removeBackend = defineRoute({
  method: "DELETE",
  path: "/api/admin/backends",
  summary: "Remove the backend with this registration index",
  auth: "admin_token",
  body: z.object({ index: wholeNumber("Missing 'index' field") }, NOT_AN_OBJECT),
  bodyBytesMax: BODY_BYTES_MAX,
  invalid: { ...BODY_ERRORS, index: "missing_index" },
  response: Done,
  handler: async ({ body, rooms }) => {
    await rooms.routing.removeAt(body.index);
    return done("backend removed");
  },
});

export const aliasField = (name: "alias" | "target") =>
  z
    .string(`Missing '${name}' field`)
    .trim()
    .min(1, `Missing '${name}' field`)
    .max(
      MODEL_ID_LENGTH_MAX,
      `'${name}' may have at most ${MODEL_ID_LENGTH_MAX} characters, like every model id`,
    );
const ALIAS_ERRORS = { ...BODY_ERRORS, alias: "missing_alias", target: "missing_target" } as const;

export const addAlias = defineRoute({
  method: "POST",
  path: "/api/admin/aliases",
  summary: "Let a model be called by another name; in memory only",
  auth: "admin_token",
  body: z.object({ alias: aliasField("alias"), target: aliasField("target") }, NOT_AN_OBJECT),
  bodyBytesMax: BODY_BYTES_MAX,
  invalid: ALIAS_ERRORS,
  response: Done,
  handler: ({ body, rooms }) => {
    rooms.routing.aliases.set(body.alias, body.target);
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
  body: z.object({ alias: aliasField("alias") }, NOT_AN_OBJECT),
  bodyBytesMax: BODY_BYTES_MAX,
  invalid: ALIAS_ERRORS,
  response: Done,
  handler: ({ body, rooms }) => {
    rooms.routing.aliases.remove(body.alias);
    return done("alias removed");
  },
});
