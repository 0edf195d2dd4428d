import { OWN_SIGNATURE, sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import type { ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { toolInput } from "../tool-calls.ts";
import type { Failure } from "../voice.ts";
import type { Thoughts } from "./request.ts";

const STOP_REASONS: Record<string, string> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  function_call: "tool_use",
  content_filter: "refusal",
};

interface Stop {
  stop_reason: string;
  stop_sequence: string | null;
}

/** vLLM ends a forced tool call with `stop`, so look for calls in the answer. */
export function stopOf({ reason, stopSequence }: Finish, hasCalls: boolean): Stop {
  if (hasCalls && reason === "stop") return { stop_reason: "tool_use", stop_sequence: null };
  if (reason === "stop" && stopSequence !== null) {
    return { stop_reason: "stop_sequence", stop_sequence: stopSequence };
  }
  return { stop_reason: STOP_REASONS[reason] ?? "end_turn", stop_sequence: null };
}

/** Anthropic reports cached tokens separately; chat completions include them in the prompt tokens. */
export function usageOf({ prompt, cached, cacheWritten, completion, reasoning }: TokenCounts) {
  return {
    input_tokens: Math.max(0, prompt - cached - cacheWritten),
    cache_creation_input_tokens: cacheWritten,
    cache_read_input_tokens: cached,
    output_tokens: completion,
    output_tokens_details: reasoning > 0 ? { thinking_tokens: reasoning } : null,
    server_tool_use: null,
  };
}

interface MessageParts {
  id: string;
  model: string;
  content: object[];
  stop: Stop | null;
  usage: TokenCounts;
}

/** The message object; a stream's first event carries one too. */
export const messageWith = ({ id, model, content, stop, usage }: MessageParts) => ({
  id,
  type: "message",
  role: "assistant",
  model,
  container: null,
  diagnostics: null,
  stop_details: null,
  content,
  stop_reason: stop?.stop_reason ?? null,
  stop_sequence: stop?.stop_sequence ?? null,
  usage: usageOf(usage),
});

export const toolUseBlock = (call: { id: string; name: string }, input: unknown) => ({
  type: "tool_use",
  id: call.id,
  name: call.name,
  input,
  caller: { type: "direct" },
});

/** Anthropic signs its reasoning; another model's carries the gateway's own mark. */
export const thinkingBlock = (thinking: string, signature = OWN_SIGNATURE) => ({
  type: "thinking",
  thinking,
  signature,
});
export const textBlock = (text: string) => ({ type: "text", text, citations: null });

export function messageOf(answer: ChatAnswer, { id, thoughts }: { id: string; thoughts: Thoughts }) {
  const { refusal, reasoning, calls, finish, usage } = answer;
  const text = answer.text || refusal;
  const content: object[] = [];
  if (thoughts === "shown" && reasoning) content.push(thinkingBlock(reasoning));
  if (thoughts === "sealed" && reasoning) content.push(thinkingBlock("", sealedThoughts(reasoning)));
  if (text) content.push(textBlock(text));
  for (const call of calls) content.push(toolUseBlock(call, toolInput(call.arguments)));
  const stop = stopOf(refusal ? { ...finish, reason: "content_filter" } : finish, calls.length > 0);
  return messageWith({ id, model: answer.model, content, stop, usage });
}

const ERROR_TYPES: Record<number, string> = {
  400: "invalid_request_error",
  401: "authentication_error",
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
  504: "timeout_error",
};

export function errorBody({ status, message: words, overflow }: Failure) {
  const { promptTokens = null, contextTokens = null } = overflow ?? {};
  const hasFigures = promptTokens !== null && contextTokens !== null;
  // Anthropic's wording, which makes its clients shorten the conversation.
  const message = hasFigures
    ? `prompt is too long: ${promptTokens} tokens > ${contextTokens} maximum`
    : overflow
      ? `prompt is too long: ${words}`
      : words;
  const type = ERROR_TYPES[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
  return { type: "error", error: { type, message, details: null } };
}

/** Anthropic's clients send this header with every request; they get models in Anthropic's form. */
export const VERSION_HEADER = "anthropic-version";

export const messagesModelOf = ({ id, created }: { id: string; created: number }) => ({
  type: "model" as const,
  id,
  display_name: id,
  created_at: new Date(created * 1000).toISOString(),
});

export const messagesModelsOf = (models: readonly { id: string; created: number }[]) => ({
  data: models.map(messagesModelOf),
  has_more: false,
  first_id: models[0]?.id ?? null,
  last_id: models.at(-1)?.id ?? null,
});
