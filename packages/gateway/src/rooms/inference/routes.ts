import { z } from "zod";
import { defineRoute, raw } from "../../kernel/route.ts";
import { ToolCall, Usage } from "./notifications.ts";

/** Images travel inside the body. */
const BODY_BYTES_MAX = 32 * 1024 * 1024;

/** For the documents: bodies are read field by field and passed on as they are. */
const ChatRequest = z.looseObject({
  model: z.string().describe("Id from GET /v1/models, or an alias"),
  messages: z.array(
    z.looseObject({
      role: z.string(),
      content: z.union([z.string(), z.array(z.unknown())]).nullish(),
      images: z.array(z.unknown()).optional(),
      tool_calls: z.array(z.unknown()).optional(),
    }),
  ),
  stream: z.boolean().optional().describe("True: the answer is an event stream"),
  temperature: z.number().optional(),
  max_tokens: z.int().optional(),
  conversation_id: z.string().optional().describe("One of your conversations; the turn is stored in it"),
  memory: z.boolean().optional().describe("False: nothing is recalled for this request"),
  extra: z.record(z.string(), z.unknown()).optional().describe("Merged into what is sent upstream"),
  tools: z.array(z.unknown()).optional(),
  provider: z.string().optional().describe("Only this backend, or backends of this kind"),
});

const ChatAnswer = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      message: z.looseObject({
        role: z.string(),
        content: z.string().nullable(),
        tool_calls: z.array(ToolCall).optional(),
      }),
      finish_reason: z.string(),
    }),
  ),
  usage: Usage,
});

const ChatChunk = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion.chunk"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      delta: z.looseObject({
        role: z.string().optional(),
        content: z.string().nullish(),
        reasoning_content: z.string().optional(),
        tool_calls: z.array(ToolCall).optional(),
      }),
      finish_reason: z.string().nullable(),
    }),
  ),
  usage: Usage.nullish(),
});

export const chatCompletions = defineRoute({
  method: "POST",
  path: "/v1/chat/completions",
  summary: "One chat turn, as a whole or as an event stream that ends with [DONE]",
  auth: "api_key",
  body: raw(ChatRequest),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(ChatAnswer, { events: ChatChunk }),
  handler: (call) => call.rooms.inference.chatCompletions(call),
  refuse: (error, call) => call.rooms.inference.refuse(error, call),
});

export const embeddings = defineRoute({
  method: "POST",
  path: "/v1/embeddings",
  summary: "Vectors of texts, as numbers or as base64 of little-endian float32",
  auth: "api_key",
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

const Model = z.object({
  id: z.string(),
  object: z.literal("model"),
  created: z.int(),
  owned_by: z.string(),
});

export const models = defineRoute({
  method: "GET",
  path: "/v1/models",
  summary: "Models that can be called now, and well-known ones that a backend may serve",
  auth: "public",
  response: z.object({
    object: z.literal("list"),
    data: z.array(Model),
  }),
  handler: ({ rooms }) => rooms.inference.models(),
});

export const model = defineRoute({
  method: "GET",
  path: "/v1/models/{model}",
  summary: "One of the models that are listed; a slash in its id is written %2F",
  auth: "public",
  response: Model,
  handler: ({ rooms, path }) => rooms.inference.model(path.model),
});
