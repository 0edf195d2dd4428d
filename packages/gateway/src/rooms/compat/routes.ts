import { z } from "zod";
import { defineRoute, raw } from "../../kernel/route.ts";
import { BODY_BYTES_MAX } from "./service.ts";

export const responses = defineRoute({
  method: "POST",
  path: "/v1/responses",
  summary: "OpenAI Responses API over the chat path, streaming or not; nothing is stored",
  auth: "api_key",
  body: raw(
    z.looseObject({
      model: z.string(),
      input: z.union([z.string(), z.array(z.looseObject({}))]),
      instructions: z.string().nullish(),
      stream: z.boolean().nullish(),
      max_output_tokens: z.int().nullish(),
      tools: z.array(z.looseObject({ type: z.string() })).nullish(),
    }),
  ),
  response: raw(z.looseObject({ id: z.string(), object: z.literal("response"), status: z.string() })),
  bodyBytesMax: BODY_BYTES_MAX,
  handler: (call) => call.rooms.compat.responses(call),
  refuse: (error, call) => call.rooms.compat.refuse(error, call, "responses"),
});

const Conversation = z.looseObject({
  model: z.string(),
  messages: z.array(
    z.object({
      role: z.string(),
      content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]),
    }),
  ),
  system: z.union([z.string(), z.array(z.looseObject({}))]).nullish(),
  tools: z.array(z.looseObject({ name: z.string() })).nullish(),
});

export const messages = defineRoute({
  method: "POST",
  path: "/v1/messages",
  summary: "Anthropic Messages API over the chat path, streaming or not",
  auth: "api_key",
  keyHeader: "x-api-key",
  body: raw(Conversation.extend({ max_tokens: z.int(), stream: z.boolean().nullish() })),
  response: raw(
    z.looseObject({
      id: z.string(),
      type: z.literal("message"),
      content: z.array(z.looseObject({})),
    }),
  ),
  bodyBytesMax: BODY_BYTES_MAX,
  handler: (call) => call.rooms.compat.messages(call),
  refuse: (error, call) => call.rooms.compat.refuse(error, call, "messages"),
});

export const countTokens = defineRoute({
  method: "POST",
  path: "/v1/messages/count_tokens",
  summary: "Prompt tokens of a Messages request, estimated; costs nothing",
  auth: "api_key",
  keyHeader: "x-api-key",
  outsideTierRate: true,
  body: raw(Conversation),
  response: raw(z.object({ input_tokens: z.int() })),
  bodyBytesMax: BODY_BYTES_MAX,
  handler: (call) => call.rooms.compat.countTokens(call),
  refuse: (error, call) => call.rooms.compat.refuse(error, call, "countTokens"),
});
