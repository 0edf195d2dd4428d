import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { ConversationId } from "../conversations/index.ts";

const Message = z.looseObject({
  role: z.enum(["user", "assistant", "system", "developer", "tool"]),
  content: z.union([z.string(), z.array(z.unknown())]).nullish(),
  images: z.array(z.unknown()).optional(),
  tool_calls: z.array(z.unknown()).max(1_000).optional(),
});

export const send = defineMethod({
  name: "chat.send",
  summary: "Send a chat turn; its answer arrives as chat.stream notifications, one token each",
  auth: "jwt",
  audit: false,
  recorded: true,
  notifies: ["chat.stream"],
  params: z.object({
    model: z.string().min(1).max(256),
    messages: z.array(Message).min(1),
    temperature: z.number().optional(),
    max_tokens: z.int().min(1).max(10_000_000).optional(),
    conversation_id: ConversationId.optional().describe(
      "Its stored messages go before these, and the turn is added to it",
    ),
    memory: z.boolean().optional().describe("False: nothing is recalled for this turn"),
    extra: z.unknown().optional().describe("An object, merged into what is sent upstream"),
    tools: z.array(z.unknown()).optional(),
    provider: z.string().max(256).optional(),
  }),
  result: z.object({
    stream_id: z.string().describe("Session of GET /api/rpc/events"),
    memory: z.enum(["enabled", "disabled", "offline"]),
    max_tokens: z
      .int()
      .optional()
      .describe("The output limit that points and quota can pay for; absent when the answer was not limited"),
  }),
  handler: ({ params, actor, rooms, record }) => rooms.inference.send(actor, params, record),
});

export const stop = defineMethod({
  name: "chat.stop",
  summary: "Stop an answer of chat.send; leaving its notifications does not",
  auth: "jwt",
  audit: false,
  params: z.object({ stream_id: z.string().min(1).max(64).describe("As chat.send returned it") }),
  handler: ({ params, actor, rooms }) => {
    rooms.inference.stop(actor, params.stream_id);
  },
});

export const invoke = defineMethod({
  name: "engine.invoke",
  summary: "Call a method of the engine that serves a model, and return its raw result",
  auth: "admin",
  hint: "engine.invoke reaches into an engine; ask an administrator",
  params: z.object({
    model: z.string().min(1).max(256),
    method: z.string().min(1).max(128),
    params: z.looseObject({}).optional(),
  }),
  result: z.unknown(),
  handler: ({ params, rooms }) => rooms.inference.invoke(params),
});
