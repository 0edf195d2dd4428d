import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { sessionField } from "../../call/session.ts";
import { Payload } from "../../request/payload.ts";
import { promptTokens } from "../prompt-tokens.ts";
import { idToken, nativeOf, type ReadRequest, type RequestContext, type Voice } from "../voice.ts";
import { chatBodyOfMessages, thoughtsFor } from "./request.ts";
import { errorBody, MessageSpeaker } from "./speaker.ts";

function translated(body: unknown, { requestId }: RequestContext): ReadRequest {
  const chat = chatBodyOfMessages(body);
  const thoughts = thoughtsFor(body);
  const speaker = new MessageSpeaker({
    id: `msg_${idToken(requestId)}`,
    thoughts,
    promptTokens: () => promptTokens(chat),
  });
  const payload = new Payload(chat);
  payload.wantsThoughts = thoughts === "shown";
  payload.session = sessionField((field) => (body as Record<string, unknown>)[field]);
  return { payload, speaker };
}

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

export const messages: Voice = {
  routes: {
    messages: {
      path: "/v1/messages",
      summary: "Anthropic Messages API over the chat path, streaming or not",
      body: Conversation.extend({ max_tokens: z.int(), stream: z.boolean().nullish() }),
      response: z.looseObject({
        id: z.string(),
        type: z.literal("message"),
        content: z.array(z.looseObject({})),
      }),
    },
    countTokens: {
      path: "/v1/messages/count_tokens",
      summary: "Prompt tokens of a Messages request, estimated; costs nothing",
      body: Conversation,
      response: z.object({ input_tokens: z.int() }),
      answer: async (bytes) => ({ input_tokens: promptTokens(chatBodyOfMessages(await readJson(bytes))) }),
    },
  },
  keyHeader: "x-api-key",
  requestIdHeader: "request-id",
  async read(bytes, context) {
    if (!context.isSpoken("messages")) return translated(await readJson(bytes), context);
    const payload = await Payload.read(bytes);
    return {
      native: nativeOf("messages", payload, (max_tokens) => ({ max_tokens })),
      translated: () => translated(payload.object(), context),
    };
  },
  errorBody: (failure, requestId) => ({ ...errorBody(failure), request_id: requestId }),
};
