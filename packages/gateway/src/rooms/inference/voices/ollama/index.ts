import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { validate } from "../../../../kernel/validate.ts";
import { Payload } from "../../request/payload.ts";
import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { Given } from "../given.ts";
import { toolInput } from "../tool-calls.ts";
import { type ChatEvent, droppedHeaders, type Failure, type Speaker, type Voice } from "../voice.ts";
import { withoutTag } from "./models.ts";
import { type ConvertedRequest, chatRequest, generateRequest } from "./request.ts";

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

const NANOS_PER_MS = 1_000_000;

/** How each of the two paths writes a piece of its answer. */
type PieceForm = (piece: { content?: string; thinking?: string; tool_calls?: object[] }) => object;

const asMessage: PieceForm = ({ content = "", ...more }) => ({
  message: { role: "assistant", content, ...more },
});
const asResponse: PieceForm = ({ content = "", ...more }) => ({ response: content, ...more });

interface OllamaSpeakerOptions {
  model: string;
  form: PieceForm;
  /** Whether the client wants to see reasoning. */
  thinking: boolean;
  startedAtMs: number;
  now(): number;
}

const callOf = ({ id, name, arguments: args }: AnsweredCall) => ({
  id,
  function: { name, arguments: toolInput(args) },
});

class OllamaSpeaker implements Speaker {
  readonly contentType = "application/x-ndjson";
  constructor(readonly options: OllamaSpeakerOptions) {}

  /** Clients parse every line, so an empty line would be an error. */
  get keepAlive(): string {
    return this.#line(this.options.form({}));
  }

  #head(): { model: string; created_at: string } {
    const { model, now } = this.options;
    return { model, created_at: new Date(now()).toISOString() };
  }

  #line(fields: object): string {
    return `${JSON.stringify({ ...this.#head(), ...fields, done: false })}\n`;
  }

  write(event: ChatEvent): string {
    const { form, thinking } = this.options;
    switch (event.type) {
      case "reasoning":
        return thinking ? this.#line(form({ thinking: event.text })) : "";
      case "text":
      case "refusal":
        return this.#line(form({ content: event.text }));
      case "tool_end":
        return this.#line(form({ tool_calls: [callOf(event.call)] }));
      case "finish":
        return `${JSON.stringify({ ...this.#head(), ...form({}), ...this.#ending(event.finish, event.usage) })}\n`;
      case "failure":
        return `${JSON.stringify({ error: event.failure.message })}\n`;
      default:
        return "";
    }
  }

  #ending({ reason }: Finish, { prompt, completion }: TokenCounts): object {
    const totalNanos = Math.max(1, this.options.now() - this.options.startedAtMs) * NANOS_PER_MS;
    return {
      done: true,
      done_reason: reason === "length" ? "length" : "stop",
      total_duration: totalNanos,
      load_duration: 0,
      prompt_eval_count: prompt,
      prompt_eval_duration: 0,
      eval_count: completion,
      eval_duration: totalNanos,
    };
  }

  whole({ text, refusal, reasoning, calls, finish, usage }: ChatAnswer): string {
    const { form, thinking } = this.options;
    const piece = form({
      content: text || refusal,
      ...(thinking && reasoning && { thinking: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map(callOf) }),
    });
    return JSON.stringify({ ...this.#head(), ...piece, ...this.#ending(finish, usage) });
  }

  /** The answer to a request that only loads the model. */
  loaded(): object {
    return { ...this.#head(), ...this.options.form({}), done: true, done_reason: "load" };
  }
}

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
    return { payload: new Payload(fields), speaker, form: answerForm, headers: droppedHeaders(dropped) };
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
