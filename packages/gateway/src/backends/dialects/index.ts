import { isObject } from "../../kernel/json.ts";
import type { BackendConfig, DialectName, LimitFields } from "../contract.ts";
import { apiBase, type Dialect } from "./dialect.ts";
import { GeminiReader, GeminiStream, geminiAnswer } from "./gemini/answer.ts";
import { geminiRequest, mendedGemini } from "./gemini/request.ts";
import { MessagesReader, MessagesStream, messagesAnswer } from "./messages/answer.ts";
import { mendedMessages, messagesRequest, usualOutputTokens } from "./messages/request.ts";
import { ResponsesReader, ResponsesStream, responsesAnswer } from "./responses/answer.ts";
import { mendedResponses, OUTPUT_TOKENS_MIN, responsesRequest } from "./responses/request.ts";

/** Chat completions, which the gateway uses inside. */
const chat: Dialect = {
  name: "chat",
  base: (url) => apiBase(url),
  path: () => "/chat/completions",
  auth: "bearer",
  listing: { path: "/models" },
};

const responses: Dialect = {
  ...chat,
  name: "responses",
  path: () => "/responses",
  translation: {
    request: responsesRequest,
    answer: responsesAnswer,
    stream: () => new ResponsesStream(),
  },
  native: {
    limitField: "max_output_tokens",
    limitMin: OUTPUT_TOKENS_MIN,
    // Without those that choose the organisation or the project, which is up to the operator.
    requestHeaders:
      /^(openai-beta|idempotency-key|(session|thread|conversation)[-_]id|x-client-request-id|originator|version|x-openai-subagent|x-codex-.*|x-stainless-.*|user-agent)$/,
    answerHeaders:
      /^(x-ratelimit-.*|openai-(model|processing-ms|version)|x-codex-.*|retry-after(-ms)?|x-should-retry)$/,
    mended: mendedResponses,
    reader: () => new ResponsesReader(),
  },
};

const messages: Dialect = {
  name: "messages",
  base: (url) => apiBase(url),
  path: () => "/messages",
  auth: "x-api-key",
  headers: { "anthropic-version": "2023-06-01" },
  listing: {
    path: "/models?limit=1000",
    next: (body) =>
      isObject(body) && body.has_more === true && typeof body.last_id === "string"
        ? `/models?limit=1000&after_id=${encodeURIComponent(body.last_id)}`
        : null,
  },
  translation: {
    request: messagesRequest,
    answer: messagesAnswer,
    stream: () => new MessagesStream(),
    usualOutputTokens,
  },
  native: {
    limitField: "max_tokens",
    requestHeaders: /^(anthropic-.*|idempotency-key|x-claude-code-.*|x-stainless-.*|x-app|user-agent)$/,
    answerHeaders: /^(anthropic-(ratelimit|priority|fast)-.*|retry-after|x-should-retry)$/,
    mended: mendedMessages,
    reader: () => new MessagesReader(),
  },
};

const gemini: Dialect = {
  name: "gemini",
  base: (url) => apiBase(url, "v1beta"),
  path: ({ model, stream }) =>
    `/models/${encodeURIComponent(model)}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
  auth: "x-goog-api-key",
  listing: {
    path: "/models?pageSize=1000",
    next: (body) =>
      isObject(body) && typeof body.nextPageToken === "string" && body.nextPageToken !== ""
        ? `/models?pageSize=1000&pageToken=${encodeURIComponent(body.nextPageToken)}`
        : null,
  },
  translation: {
    request: geminiRequest,
    answer: geminiAnswer,
    stream: () => new GeminiStream(),
  },
  native: {
    limitField: "generationConfig.maxOutputTokens",
    requestHeaders: /^(x-goog-api-client|x-gemini-.*|user-agent)$/,
    answerHeaders: /^(x-gemini-.*|server-timing|retry-after)$/,
    mended: mendedGemini,
    reader: () => new GeminiReader(),
  },
};

export const dialects: Readonly<Record<DialectName, Dialect>> = { chat, responses, messages, gemini };

/** Vendors' own hosts; all others speak chat completions. */
const HOSTS: readonly { host: RegExp; not?: RegExp; speaks: readonly DialectName[] }[] = [
  { host: /^api\.openai\.com$/i, speaks: ["chat", "responses"] },
  { host: /^api\.anthropic\.com$/i, speaks: ["messages"] },
  // Its chat completions are below /openai.
  { host: /^generativelanguage\.googleapis\.com$/i, not: /\/openai(\/|$)/i, speaks: ["gemini"] },
];
const USUAL: readonly DialectName[] = ["chat"];

/** As registered, or else by the host. Chats are sent in the first. */
export function dialectsOf({
  dialects: given,
  url,
}: Pick<BackendConfig, "dialects" | "url">): readonly DialectName[] {
  if (given && given.length > 0) return given;
  const { hostname = "", pathname = "" } = URL.parse(url) ?? {};
  return HOSTS.find(({ host, not }) => host.test(hostname) && !not?.test(pathname))?.speaks ?? USUAL;
}

/** OpenAI's models since o1 refuse `max_tokens` on every host. */
const NEWER_OPENAI = /(^|[/:])(o[1-9]\d*|gpt-([5-9]|\d\d))([.-]|$)/i;
/** Hosts and engines that take both names; others may ignore the newer one. */
const KNOWS_BOTH_HOSTS =
  /(^|\.)(openai\.com|azure\.com|groq\.com|openrouter\.ai|x\.ai|anthropic\.com|googleapis\.com)$/i;
const KNOWS_BOTH_TYPES: ReadonlySet<string> = new Set(["vllm", "sglang"]);

const NEWER = ["max_completion_tokens", "max_tokens"] as const;
const BOTH = ["max_tokens", "max_completion_tokens"] as const;
const OLDER = ["max_tokens"] as const;

export function limitFieldsFor(
  config: Pick<BackendConfig, "url" | "type" | "dialects" | "limit_field">,
): LimitFields {
  // Other dialects have a field of their own, which is set from either.
  if (dialectsOf(config)[0] !== "chat") return () => BOTH;
  const { limit_field: field } = config;
  if (field) return () => [field];
  const host = URL.parse(config.url)?.hostname ?? "";
  const usual = KNOWS_BOTH_TYPES.has(config.type.toLowerCase()) || KNOWS_BOTH_HOSTS.test(host) ? BOTH : OLDER;
  return (model) => (NEWER_OPENAI.test(model) ? NEWER : usual);
}
