import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { validate } from "../../../../kernel/validate.ts";
import { Payload } from "../../request/payload.ts";
import { Given } from "../given.ts";
import type { Failure, Voice } from "../voice.ts";
import { withoutTag } from "./models.ts";
import { type ConvertedRequest, chatRequest, generateRequest } from "./request.ts";
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

/** How one of the two paths reads its request. */
const reading =
  (
    schema: typeof Asked,
    form: PieceForm,
    convert: (body: Given, model: string) => ConvertedRequest | null,
  ): Voice["read"] =>
  async (bytes, context) => {
    const body = validate(schema, await readJson(bytes));
    const speaker = new OllamaSpeaker({
      model: body.model,
      form,
      thinking: body.think !== false,
      startedAtMs: context.now(),
      now: () => context.now(),
    });
    const model = withoutTag(body.model);
    const converted = convert(new Given(body), model);
    if (!converted) {
      context.requireModel(model);
      return { answer: speaker.loaded() };
    }
    const { fields, dropped, form: answerForm } = converted;
    const headers = dropped.length > 0 ? { [DROPPED_HEADER]: dropped.join(", ") } : undefined;
    return { payload: new Payload(fields), speaker, form: answerForm, headers };
  };

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
  read: reading(ChatAsked, asMessage, chatRequest),
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
  read: reading(GenerateAsked, asResponse, generateRequest),
  errorBody,
};
