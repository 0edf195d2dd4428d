import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { validate } from "../../../../kernel/validate.ts";
import { TEXT_FORM } from "../../call/answer-shape.ts";
import { Payload } from "../../request/payload.ts";
import type { Answered, Failure, ReadRequest, RequestContext, Voice } from "../voice.ts";
import { withoutTag } from "./models.ts";
import { asksNothing, chatBodyOfChat, chatBodyOfGenerate, isGap, textBodyOfGenerate } from "./request.ts";
import { asMessage, asResponse, OllamaSpeaker, type PieceForm } from "./speaker.ts";

/** Header with the options that could not be passed on. */
const DROPPED_HEADER = "x-service-dropped";

const Asked = z.looseObject({
  model: z.string().min(1).max(256),
  stream: z.boolean().nullish().describe("False: one object; otherwise a line for each piece"),
  options: z.looseObject({ num_predict: z.int().nullish() }).nullish(),
  format: z.union([z.string(), z.looseObject({})]).nullish(),
  think: z.union([z.boolean(), z.string()]).nullish(),
});

const Ended = z.looseObject({
  model: z.string(),
  created_at: z.string(),
  done: z.boolean(),
  done_reason: z.string().optional(),
  prompt_eval_count: z.int().optional(),
  eval_count: z.int().optional(),
});

const Message = z.looseObject({ role: z.string(), content: z.string() });

const ChatAsked = Asked.extend({
  messages: z.array(Message.extend({ content: z.string().nullish() })).nullish(),
  tools: z.array(z.looseObject({})).nullish(),
});

const GenerateAsked = Asked.extend({
  prompt: z.string().nullish(),
  suffix: z.string().nullish(),
  system: z.string().nullish(),
  raw: z.boolean().nullish().describe("True: the prompt goes to the model as it is"),
  images: z.array(z.string()).nullish(),
});

export const errorBody = ({ message }: Failure): object => ({ error: message });

function speakerOf(body: Record<string, unknown>, form: PieceForm, context: RequestContext): OllamaSpeaker {
  const model = String(body.model);
  return new OllamaSpeaker({
    model,
    form,
    thinking: body.think !== false,
    startedAtMs: context.now(),
    now: () => context.now(),
  });
}

const droppedHeaders = (dropped: readonly string[]): ReadRequest["headers"] =>
  dropped.length > 0 ? { [DROPPED_HEADER]: dropped.join(", ") } : undefined;

function readChat(given: unknown, context: RequestContext): ReadRequest | Answered {
  const body = validate(ChatAsked, given);
  const model = withoutTag(body.model);
  const speaker = speakerOf(body, asMessage, context);
  if (asksNothing({ messages: body.messages ?? [] })) return loaded(speaker, model, context);
  const { chat, dropped } = chatBodyOfChat(body, model);
  return { payload: new Payload(chat), speaker, headers: droppedHeaders(dropped) };
}

function readGenerate(given: unknown, context: RequestContext): ReadRequest | Answered {
  const body = validate(GenerateAsked, given);
  const model = withoutTag(body.model);
  const speaker = speakerOf(body, asResponse, context);
  if (asksNothing({ ...body, messages: undefined })) return loaded(speaker, model, context);
  if (isGap(body)) return { payload: new Payload(textBodyOfGenerate(body, model)), speaker, form: TEXT_FORM };
  const { chat, dropped } = chatBodyOfGenerate(body, model);
  return { payload: new Payload(chat), speaker, headers: droppedHeaders(dropped) };
}

function loaded(speaker: OllamaSpeaker, model: string, context: RequestContext): Answered {
  context.requireModel(model);
  return { answer: speaker.loaded() };
}

/** Ollama's own chat API. */
export const ollamaChat: Voice = {
  routes: {
    ollamaChat: {
      path: "/api/chat",
      summary: "One chat turn as Ollama's API has it: lines of JSON, or one object",
      body: ChatAsked,
      response: Ended.extend({ message: Message }),
    },
  },
  read: async (bytes, context) => readChat(await readJson(bytes), context),
  errorBody,
};

export const ollamaGenerate: Voice = {
  routes: {
    ollamaGenerate: {
      path: "/api/generate",
      summary: "An answer to a prompt, or what fills the gap before `suffix`, as Ollama's API has it",
      body: GenerateAsked,
      response: Ended.extend({ response: z.string() }),
    },
  },
  read: async (bytes, context) => readGenerate(await readJson(bytes), context),
  errorBody,
};
