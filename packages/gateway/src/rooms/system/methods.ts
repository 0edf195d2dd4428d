import { z } from "zod";
import { defineMethod, Timestamp } from "../../kernel/method.ts";
import { LostCacheShare } from "../usage/index.ts";
import { FoundServer } from "./local-servers.ts";

export const status = defineMethod({
  name: "system.status",
  summary: "What the service is doing right now",
  auth: "public",
  result: z.object({
    agents_online: z.int(),
    gpu_nodes: z.int(),
    models_deployed: z.int(),
    requests_total: z.int(),
    requests_per_minute: z.int(),
    uptime_seconds: z.int(),
  }),
  handler: ({ rooms }) => rooms.system.status(),
});

export const probe = defineMethod({
  name: "system.probe",
  summary: "Acknowledge, then close: only on a WebSocket without a token",
  auth: "anonymous_socket",
  result: z.object({ ok: z.literal(true), status: z.literal("ok") }),
  handler: () => ({ ok: true as const, status: "ok" as const }),
});

const FirstToken = z.object({
  count: z.int().describe("Streamed answers in the window"),
  p50_ms: z.number().nullable(),
  p95_ms: z.number().nullable(),
});
const State = z.enum(["Healthy", "Degraded", "Unhealthy"]);

export const activity = defineMethod({
  name: "system.activity",
  summary: "The last hour: outcomes by minute, first tokens, probes of backends, latest failures",
  auth: "admin",
  hint: "the whole service's requests and failures are for administrators",
  result: z.object({
    minutes: z
      .array(
        z.object({
          at: Timestamp,
          ok: z.int(),
          client_error: z.int(),
          upstream_error: z.int(),
          gateway_error: z.int(),
          client_left: z.int(),
        }),
      )
      .describe("At most 60, oldest first; the last one is under way"),
    first_token: FirstToken.extend({ models: z.array(FirstToken.extend({ model: z.string() })) }),
    backends_total: z.int(),
    backends: z
      .array(
        z.object({
          name: z.string(),
          kind: z.string(),
          state: State,
          circuit: z.enum(["closed", "open", "half_open"]),
          detail: z.string().nullable().describe("Why the state is not Healthy"),
          lost_cache_share: LostCacheShare,
          probes: z.array(
            z.object({
              at: Timestamp,
              state: State,
              latency_ms: z.number().nullable(),
              detail: z.string().nullable(),
            }),
          ),
        }),
      )
      .describe("Those in trouble first"),
    failures: z
      .array(
        z.object({
          at: Timestamp,
          request_id: z.string(),
          times: z.int().describe("How often the same failure was seen"),
          status: z.int(),
          code: z.string(),
          model: z.string().nullable(),
          backend: z.string().nullable(),
          message: z.string(),
        }),
      )
      .describe("Newest first"),
  }),
  handler: async ({ rooms }) => rooms.system.activity(await rooms.usage.cacheWatch.lost()),
});

export const listModels = defineMethod({
  name: "models.list",
  summary: "The catalogue: models and model routes, what each costs and can do, and how soon it answers",
  auth: "jwt",
  result: z.array(
    z.object({
      id: z.string(),
      targets: z.array(z.string()).nullable().describe("Of a model route: models in the order of trying"),
      served_by: z.string(),
      is_own: z.boolean().describe("It runs on own hardware"),
      available: z.boolean().describe("Whether it can be called now"),
      capabilities: z.array(z.string()),
      context_tokens: z.int().nullable(),
      input_usd: z.number().nullable().describe("Per million tokens; a route like its first target"),
      output_usd: z.number().nullable(),
      first_token_ms: z.number().nullable().describe("Median of the last hour"),
    }),
  ),
  handler: async ({ rooms: { billing, routing, requests } }) => {
    const { first_token } = await requests.lastHour();
    const medians = new Map(first_token.models.map(({ model, p50_ms }) => [model, p50_ms]));
    return routing.callableModels().map(({ id, owned_by, available }) => {
      const targets = routing.routes.targetsOf(id)?.toSorted((a, b) => a.order - b.order) ?? null;
      const model = targets?.[0]?.model ?? id;
      const { input, output } = billing.pricing.priceOf(model, routing.router.isOwn(model));
      return {
        id,
        targets: targets?.map((target) => target.model) ?? null,
        served_by: owned_by,
        is_own: routing.router.isOwn(model),
        available,
        capabilities: routing.router.capabilitiesOf(model),
        context_tokens: billing.pricing.limitsOf(model).contextTokens,
        input_usd: input,
        output_usd: output,
        first_token_ms: medians.get(model) ?? null,
      };
    });
  },
});

const SET_UP = "registering model servers is for administrators";

export const detectBackends = defineMethod({
  name: "backends.detect",
  summary: "Look for well-known model servers on the service's own machine",
  auth: "admin",
  hint: SET_UP,
  result: z.object({
    servers: z.array(
      FoundServer.extend({
        registered_as: z
          .string()
          .nullable()
          .describe("Name of the backend that is registered at this address"),
      }),
    ),
  }),
  handler: async ({ rooms }) => ({ servers: await rooms.system.localServers.detect() }),
});

export const adoptBackend = defineMethod({
  name: "backends.adopt",
  summary: "Register one of the model servers that backends.detect looks for",
  auth: "admin",
  hint: SET_UP,
  params: z.object({ server: z.string().max(32).describe("An id from backends.detect") }),
  result: z.object({ name: z.string().describe("Name of the backend") }),
  handler: ({ params, rooms }) => rooms.system.localServers.adopt(params.server),
});
export * from "./config-methods.ts";
