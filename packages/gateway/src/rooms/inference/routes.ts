import { jsonReply } from "@model-gateway/wire/http";
import { z } from "zod";
import { type AnyRoute, BODY_BYTES_MAX, defineRoute, raw, UPLOAD } from "../../kernel/route.ts";
import { type WorkKind, works } from "./unit-work/kinds.ts";
import { Usage } from "./voices/chat/index.ts";
import { voices } from "./voices/index.ts";
import { messagesModelOf, messagesModelsOf, VERSION_HEADER } from "./voices/messages/models.ts";
import type { Voice, VoiceRoute } from "./voices/voice.ts";

export { deleteResponse, response, responseInputItems } from "./responses/routes.ts";

/** Errors in our own form; an upstream's refusal keeps its status. */
const PLAIN_FORM = {};

const routeOf = (voice: Voice, route: VoiceRoute): AnyRoute =>
  defineRoute({
    method: "POST",
    path: route.path,
    summary: route.summary,
    auth: "api_key",
    keyHeader: voice.keyHeader,
    outsideTierRate: route.answer && true,
    recorded: !route.answer,
    body: raw(route.body),
    bodyBytesMax: BODY_BYTES_MAX,
    response: raw(route.response, { events: route.events }),
    handler: (call) => call.rooms.inference.speak(voice, route, call),
    refuse: (error, call) =>
      call.rooms.inference.refuse(error, call, { form: voice, isRequest: !route.answer }),
  });

export const voiceRoutes: Record<string, AnyRoute> = Object.fromEntries(
  voices.flatMap((voice) =>
    Object.entries(voice.routes).map(([name, route]) => [name, routeOf(voice, route)]),
  ),
);

export const embeddings = defineRoute({
  method: "POST",
  path: "/v1/embeddings",
  summary: "Vectors of texts, as numbers or as base64 of little-endian float32",
  auth: "api_key",
  recorded: true,
  body: raw(
    z.looseObject({
      model: z.string(),
      input: z.union([z.string(), z.array(z.unknown())]),
      encoding_format: z.enum(["float", "base64"]).optional(),
      dimensions: z.int().optional(),
      provider: z.string().optional(),
    }),
  ),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(
    z.looseObject({
      object: z.literal("list"),
      data: z.array(
        z.object({
          object: z.literal("embedding"),
          index: z.int(),
          embedding: z.union([z.array(z.number()), z.string()]),
        }),
      ),
      model: z.string(),
      usage: Usage,
    }),
  ),
  handler: (call) => call.rooms.inference.embeddings(call),
  refuse: (error, call) => call.rooms.inference.refuse(error, call),
});

const workRoute = (kind: WorkKind): AnyRoute =>
  defineRoute({
    method: "POST",
    path: `/v1${kind.path}`,
    summary: kind.summary,
    auth: "api_key",
    body: raw(kind.body, kind.form === "never" ? {} : { type: "multipart/form-data" }),
    bodyBytesMax: kind.form === "never" ? BODY_BYTES_MAX : UPLOAD,
    recorded: true,
    response: raw(kind.response, { type: kind.responseType, events: kind.events }),
    handler: (call) => call.rooms.inference.work(kind, call),
    refuse: (error, call) => call.rooms.inference.refuse(error, call, { form: PLAIN_FORM, isRequest: true }),
  });

export const workRoutes: Record<string, AnyRoute> = Object.fromEntries(
  Object.entries(works).map(([name, kind]) => [name, workRoute(kind)]),
);

const Model = z.object({
  id: z.string(),
  object: z.literal("model"),
  created: z.int(),
  owned_by: z.string().describe("The backend that was registered first with it; `route` for a model route"),
  available: z.boolean().describe("Whether it can be called now"),
  quick_start: z
    .literal(true)
    .optional()
    .describe("Well known and advertised, but served by no backend here"),
  meta: z
    .record(z.string(), z.unknown())
    .optional()
    .describe("What its server says, e.g. the context length"),
});

export const models = defineRoute({
  method: "GET",
  path: "/v1/models",
  summary: "Models that can be called now, and well-known ones that a backend may serve",
  auth: "public",
  response: raw(z.object({ object: z.literal("list"), data: z.array(Model) })),
  handler: ({ rooms, request, requestId }) => {
    const { models } = rooms.inference;
    const inForm =
      request.header(VERSION_HEADER) === null ? models.all() : messagesModelsOf(models.available());
    return jsonReply(JSON.stringify(inForm), requestId);
  },
});

export const model = defineRoute({
  method: "GET",
  path: "/v1/models/{model}",
  summary: "One of the models that are listed; a slash in its id is written %2F",
  auth: "public",
  response: raw(Model),
  handler: ({ rooms, path, request, requestId }) => {
    const found = rooms.inference.models.one(path.model);
    const inForm = request.header(VERSION_HEADER) === null ? found : messagesModelOf(found);
    return jsonReply(JSON.stringify(inForm), requestId);
  },
});
