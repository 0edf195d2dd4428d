import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { TEXT_FORM } from "../../call/answer.ts";
import { Payload } from "../../request/payload.ts";
import { invalid } from "../given.ts";
import { chatBodyOfResponses } from "../responses/request.ts";
import type { ReadRequest, Voice } from "../voice.ts";

/** Chat fields that such clients mix in. `stream_options` stays theirs: not all of them can read a usage chunk. */
const CHAT_FIELDS = ["stream_options", "max_tokens", "max_completion_tokens"] as const;

/** Some editors send a Responses body to the chat path and expect a chat answer. */
async function fromResponses(bytes: Buffer, sent: Payload): Promise<ReadRequest> {
  if (sent.value("previous_response_id") != null)
    invalid("previous_response_id", "is for POST /v1/responses");
  const { stream_options: _, ...chat } = chatBodyOfResponses(await readJson(bytes)).chat;
  const own = CHAT_FIELDS.filter((name) => sent.has(name)).map((name) => [name, sent.value(name)]);
  return { payload: new Payload({ ...chat, ...Object.fromEntries(own) }) };
}

/** Token counts as chat and embeddings answers carry them; for the API reference. */
export const Usage = z.object({ prompt_tokens: z.int(), completion_tokens: z.int(), total_tokens: z.int() });

export const ToolCall = z.looseObject({
  id: z.string().optional(),
  index: z.int().optional(),
  type: z.string().optional(),
  function: z.looseObject({ name: z.string().optional(), arguments: z.string().optional() }).optional(),
});

const Model = z.string().describe("Id from GET /v1/models, or an alias");
const Provider = z.string().optional().describe("Only this backend, or backends of this kind");

const answerOf = (object: string, choice: z.ZodRawShape, usage: z.ZodType) =>
  z.looseObject({
    id: z.string(),
    object: z.literal(object),
    created: z.int(),
    model: z.string(),
    choices: z.array(z.looseObject({ index: z.int(), ...choice })),
    usage,
  });

const ChatRequest = z.looseObject({
  model: Model,
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
  provider: Provider,
});

const toolCalls = z.array(ToolCall).optional();

const ChatAnswer = answerOf(
  "chat.completion",
  {
    message: z.looseObject({ role: z.string(), content: z.string().nullable(), tool_calls: toolCalls }),
    finish_reason: z.string(),
  },
  Usage,
);

const ChatChunk = answerOf(
  "chat.completion.chunk",
  {
    delta: z.looseObject({
      role: z.string().optional(),
      content: z.string().nullish(),
      reasoning_content: z.string().optional(),
      tool_calls: toolCalls,
    }),
    finish_reason: z.string().nullable(),
  },
  Usage.nullish(),
);

const Completion = answerOf(
  "text_completion",
  { text: z.string(), finish_reason: z.string().nullable(), logprobs: z.looseObject({}).nullish() },
  Usage.nullish(),
);

/** Chat completions. Backends speak it too, so the upstream's bytes pass. */
export const chat: Voice = {
  routes: {
    chatCompletions: {
      path: "/v1/chat/completions",
      summary: "One chat turn, as a whole or as an event stream that ends with [DONE]",
      body: ChatRequest,
      response: ChatAnswer,
      events: ChatChunk,
    },
  },
  wrapsUpstreamErrors: true,
  async read(body) {
    const payload = await Payload.read(body);
    const isChat = payload.has("messages") || !payload.has("input");
    return isChat ? { payload } : fromResponses(body, payload);
  },
};

/** Text completions, for base models and for editors that complete code. */
export const completions: Voice = {
  routes: {
    completions: {
      path: "/v1/completions",
      summary: "A text that goes on from a prompt, as a whole or as an event stream that ends with [DONE]",
      body: z.looseObject({
        model: Model,
        prompt: z.union([z.string(), z.array(z.unknown())]).describe("Text, texts, or token numbers"),
        suffix: z.string().nullish().describe("What comes after the text that is asked for"),
        max_tokens: z.int().nullish(),
        n: z.int().nullish(),
        stream: z.boolean().nullish().describe("True: the answer is an event stream"),
        provider: Provider,
      }),
      response: Completion,
      events: Completion,
    },
  },
  read: async (body) => ({ payload: await Payload.read(body), form: TEXT_FORM }),
};
