import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";
import { ToolCall, Usage } from "./voices/chat/index.ts";

export const chatStream = defineNotification({
  name: "chat.stream",
  summary: "A piece of the answer to chat.send, on its stream_id; the last one is done",
  params: z.object({
    stream_id: z.string(),
    content: z.string().optional(),
    role: z.string().optional(),
    reasoning: z.string().optional(),
    tool_calls: z.array(ToolCall).optional(),
    finish_reason: z.string().nullish(),
    done: z.boolean().optional(),
    usage: Usage.nullish(),
    error: z
      .object({ code: z.int(), message: z.string() })
      .optional()
      .describe("Why the answer failed, as the error of a call"),
  }),
});

const KeyId = z.string();

export const keyRequest = defineNotification({
  name: "key.request",
  summary:
    "Requests with an API key, on the channel of its id, for its owner: the first answer, and every refusal; on key-<prefix>, refusals of unknown keys with that prefix",
  params: z.union([
    z.object({ key_id: KeyId, ok: z.literal(true) }),
    z.object({
      key_id: KeyId.nullable().describe("Null: nobody has this key"),
      ok: z.literal(false),
      status: z.int(),
      code: z.string(),
      message: z.string(),
    }),
  ]),
});
