import { isObject, readJson } from "../../../../kernel/json.ts";
import { sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import { geminiSpend } from "../../request/fields.ts";
import { Payload } from "../../request/payload.ts";
import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { invalid } from "../given.ts";
import { toolInput } from "../tool-calls.ts";
import {
  type ChatEvent,
  type Failure,
  idToken,
  type ReadRequest,
  type Speaker,
  type Voice,
} from "../voice.ts";
import { chatBodyOfGemini } from "./request.ts";

const FINISHES: Readonly<Record<string, string>> = { length: "MAX_TOKENS", content_filter: "SAFETY" };
const STATUSES: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  402: "RESOURCE_EXHAUSTED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  413: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

/** Uses Google's wording for a prompt that is too long. */
const wordsOf = ({ message, overflow }: Failure): string =>
  overflow?.promptTokens == null || overflow.contextTokens === null
    ? message
    : `The input token count (${overflow.promptTokens}) exceeds the maximum number of tokens allowed (${overflow.contextTokens}).`;

/** A failure in Google's form. */
const errorBody = (failure: Failure) => ({
  error: {
    code: failure.status,
    message: wordsOf(failure),
    status: STATUSES[failure.status] ?? (failure.status >= 500 ? "INTERNAL" : "INVALID_ARGUMENT"),
    details: [],
  },
});

/** Gemini reports reasoning separately; chat completions include it in the completion tokens. */
const usageOf = ({ prompt, cached, completion, reasoning }: TokenCounts) => ({
  promptTokenCount: prompt,
  candidatesTokenCount: completion - reasoning,
  totalTokenCount: prompt + completion,
  ...(cached > 0 && { cachedContentTokenCount: cached }),
  ...(reasoning > 0 && { thoughtsTokenCount: reasoning }),
});

/** Google's clients return a call's signature but drop thoughts, so the thoughts travel in the signature. */
const callPart = (call: AnsweredCall, thoughts: string) => ({
  functionCall: { id: call.id, name: call.name, args: toolInput(call.arguments) },
  ...(thoughts && { thoughtSignature: sealedThoughts(thoughts) }),
});

class GeminiSpeaker implements Speaker {
  readonly contentType?: string;
  readonly keepAlive: string;
  #isOpen = false;
  #thoughts = "";

  constructor(readonly options: Omit<GeminiCall, "stream"> & { responseId: string; thoughts: boolean }) {
    if (options.isArray) this.contentType = "application/json; charset=utf-8";
    this.keepAlive = options.isArray ? "\n" : ": ping\n\n";
  }

  whole({ text, refusal, reasoning, calls, finish, usage }: ChatAnswer): string {
    const parts: object[] = [];
    if (reasoning && this.options.thoughts) parts.push({ text: reasoning, thought: true });
    if (text || refusal) parts.push({ text: text || refusal });
    parts.push(...calls.map((call, i) => callPart(call, i === 0 ? reasoning : "")));
    return JSON.stringify(this.#answer(parts, { finish, usage }));
  }

  write(happened: ChatEvent): string {
    switch (happened.type) {
      case "text":
      case "refusal":
        return this.#chunk([{ text: happened.text }]);
      case "reasoning":
        this.#thoughts += happened.text;
        return this.options.thoughts ? this.#chunk([{ text: happened.text, thought: true }]) : "";
      case "tool_end": {
        const thoughts = this.#thoughts;
        this.#thoughts = "";
        return this.#chunk([callPart(happened.call, thoughts)]);
      }
      case "finish":
        return this.#framed(this.#answer([], happened)) + (this.options.isArray ? "]" : "");
      case "failure":
        return this.#framed(errorBody(happened.failure)) + (this.options.isArray ? "]" : "");
      default:
        return "";
    }
  }

  #chunk(parts: object[]): string {
    return this.#framed(this.#answer(parts));
  }

  #framed(chunk: object): string {
    const json = JSON.stringify(chunk);
    if (!this.options.isArray) return `data: ${json}\n\n`;
    const start = this.#isOpen ? ",\n" : "[";
    this.#isOpen = true;
    return start + json;
  }

  #answer(parts: object[], end?: { finish: Finish; usage: TokenCounts }) {
    const { model, responseId } = this.options;
    const candidate = { content: { role: "model", parts }, index: 0 };
    return {
      candidates: [end ? { ...candidate, finishReason: FINISHES[end.finish.reason] ?? "STOP" } : candidate],
      ...(end && { usageMetadata: usageOf(end.usage) }),
      modelVersion: model,
      responseId,
    };
  }
}

const CONFIG = "generationConfig";

export interface GeminiCall {
  model: string;
  stream: boolean;
  /** The stream is one JSON array instead of server-sent events. */
  isArray: boolean;
}

function translated(body: unknown, call: GeminiCall, requestId: string): ReadRequest {
  const config = isObject(body) && isObject(body[CONFIG]) ? body[CONFIG] : {};
  const thinking = isObject(config.thinkingConfig) ? config.thinkingConfig : {};
  const { model, isArray } = call;
  const thoughts = thinking.includeThoughts === true;
  const payload = new Payload(chatBodyOfGemini(body, call));
  payload.wantsThoughts = thoughts;
  return {
    payload,
    speaker: new GeminiSpeaker({ model, responseId: idToken(requestId), thoughts, isArray }),
  };
}

export const GEMINI_FORM = { errorBody, keyHeader: "x-goog-api-key" };

/** Google's Gemini API. The path names model and answer form, so there is a voice for each call. */
export const geminiVoice = (call: GeminiCall): Voice => ({
  routes: {},
  ...GEMINI_FORM,
  async read(bytes, context) {
    if (call.isArray || !context.isSpoken("gemini"))
      return translated(await readJson(bytes), call, context.requestId);
    const payload = await Payload.read(bytes, CONFIG);
    const inBody = payload.value("model") ?? call.model;
    if (inBody !== call.model && inBody !== `models/${call.model}`)
      invalid("model", "must be the model of the path");
    return {
      native: {
        dialect: "gemini",
        payload,
        model: call.model,
        stream: call.stream,
        spend: geminiSpend(payload, CONFIG),
        limited: (tokens) => {
          const config = { ...(payload.value(CONFIG) as object | undefined), maxOutputTokens: tokens };
          return new Map([[CONFIG, JSON.stringify(config)]]);
        },
      },
      translated: () => translated(payload.object(), call, context.requestId),
    };
  },
});
