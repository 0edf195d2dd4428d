import { OWN_SIGNATURE, sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import { type ChatAnswer, type Finish, type TokenCounts, tokenCounts } from "../chat-answer.ts";
import { toolInput } from "../tool-calls.ts";
import { type ChatEvent, type Failure, type Speaker, sseEvent } from "../voice.ts";
import type { Thoughts } from "./request.ts";

const STOP_REASONS: Record<string, string> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  function_call: "tool_use",
  content_filter: "refusal",
};

type OpenBlock = "text" | "thinking" | "tool";

/** The beginning of each kind's delta, up to its text. */
const DELTAS: Record<OpenBlock, string> = {
  text: '"type":"text_delta","text"',
  thinking: '"type":"thinking_delta","thinking"',
  tool: '"type":"input_json_delta","partial_json"',
};

const textBlock = (text: string) => ({ type: "text", text, citations: null });

/** Anthropic signs its reasoning; another model's carries the gateway's own mark. */
const thinkingBlock = (thinking: string, signature: string) => ({ type: "thinking", thinking, signature });

const toolUseBlock = ({ id, name }: { id: string; name: string }, input: unknown) => ({
  type: "tool_use",
  id,
  name,
  input,
  caller: { type: "direct" },
});

const event = (data: { type: string; [field: string]: unknown }) => sseEvent(data.type, data);

export class MessageSpeaker implements Speaker {
  readonly keepAlive = event({ type: "ping" });
  #open: OpenBlock | null = null;
  #index = -1;
  #hasCalls = false;
  #isRefused = false;
  /** Hidden thoughts of the open block. */
  #sealed = "";

  constructor(
    readonly options: {
      id: string;
      thoughts: Thoughts;
      /** Estimated, because the upstream reports the prompt's tokens only at the end. */
      promptTokens(): number;
    },
  ) {}

  whole({ model, text, refusal, reasoning, calls, finish, usage }: ChatAnswer): string {
    const { thoughts } = this.options;
    const content: object[] = [];
    if (thoughts === "shown" && reasoning) content.push(thinkingBlock(reasoning, OWN_SIGNATURE));
    if (thoughts === "sealed" && reasoning) content.push(thinkingBlock("", sealedThoughts(reasoning)));
    if (text || refusal) content.push(textBlock(text || refusal));
    for (const call of calls) content.push(toolUseBlock(call, toolInput(call.arguments)));
    this.#isRefused = refusal !== "";
    this.#hasCalls = calls.length > 0;
    return JSON.stringify(this.#message({ model, content, usage, ...this.#stopOf(finish) }));
  }

  write(happened: ChatEvent): string {
    switch (happened.type) {
      case "start": {
        const usage = { ...tokenCounts(null), prompt: this.options.promptTokens() };
        const stop = { stop_reason: null, stop_sequence: null };
        const message = this.#message({ model: happened.model, content: [], usage, ...stop });
        return event({ type: "message_start", message });
      }
      case "reasoning":
        if (this.options.thoughts === null) return "";
        if (this.options.thoughts === "shown") return this.#into("thinking", happened.text);
        this.#sealed += happened.text;
        return this.#open === "thinking" ? "" : this.#begin("thinking", thinkingBlock("", ""));
      case "refusal":
        this.#isRefused = true;
        return this.#into("text", happened.text);
      case "text":
        return this.#into("text", happened.text);
      case "tool_start":
        this.#hasCalls = true;
        return this.#begin("tool", toolUseBlock(happened, {}));
      case "tool_arguments":
        return this.#delta("tool", happened.text);
      case "tool_end":
        return this.#stop();
      case "finish": {
        const delta = { ...this.#stopOf(happened.finish), stop_details: null, container: null };
        return (
          this.#stop() +
          event({ type: "message_delta", delta, usage: usageOf(happened.usage) }) +
          event({ type: "message_stop" })
        );
      }
      case "failure":
        return event(errorBody(happened.failure));
    }
  }

  /** The message object; a stream's first event carries one too. */
  #message({
    model,
    content,
    usage,
    ...stop
  }: Stop & { model: string; content: object[]; usage: TokenCounts }) {
    return {
      id: this.options.id,
      type: "message",
      role: "assistant",
      model,
      container: null,
      diagnostics: null,
      stop_details: null,
      content,
      ...stop,
      usage: usageOf(usage),
    };
  }

  #stopOf({ reason, stopSequence }: Finish): Stop {
    if (this.#isRefused) return { stop_reason: "refusal", stop_sequence: null };
    // vLLM ends a forced tool call with `stop`, so look for calls in the answer.
    if (reason === "stop" && this.#hasCalls) return { stop_reason: "tool_use", stop_sequence: null };
    if (reason === "stop" && stopSequence !== null)
      return { stop_reason: "stop_sequence", stop_sequence: stopSequence };
    return { stop_reason: STOP_REASONS[reason] ?? "end_turn", stop_sequence: null };
  }

  #begin(kind: OpenBlock, block: object): string {
    const stopped = this.#stop();
    this.#open = kind;
    this.#index++;
    return stopped + event({ type: "content_block_start", index: this.#index, content_block: block });
  }

  /** Writes into the open block of this kind, or begins one. */
  #into(kind: "text" | "thinking", text: string): string {
    if (this.#open === kind) return this.#delta(kind, text);
    const block = kind === "text" ? textBlock("") : thinkingBlock("", "");
    return this.#begin(kind, block) + this.#delta(kind, text);
  }

  #delta(kind: OpenBlock, text: string): string {
    // Serialised by hand: this is by far the most frequent event.
    return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${this.#index},"delta":{${DELTAS[kind]}:${JSON.stringify(text)}}}\n\n`;
  }

  #stop(): string {
    if (this.#open === null) return "";
    const delta = { type: "signature_delta", signature: sealedThoughts(this.#sealed) };
    const signed =
      this.#open === "thinking" ? event({ type: "content_block_delta", index: this.#index, delta }) : "";
    this.#open = null;
    this.#sealed = "";
    return signed + event({ type: "content_block_stop", index: this.#index });
  }
}

interface Stop {
  stop_reason: string | null;
  stop_sequence: string | null;
}

/** Anthropic reports cached tokens separately; chat completions include them in the prompt tokens. */
const usageOf = ({ prompt, cached, cacheWritten, completion, reasoning }: TokenCounts) => ({
  input_tokens: Math.max(0, prompt - cached - cacheWritten),
  cache_creation_input_tokens: cacheWritten,
  cache_read_input_tokens: cached,
  output_tokens: completion,
  output_tokens_details: reasoning > 0 ? { thinking_tokens: reasoning } : null,
  server_tool_use: null,
});

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
  const problem = hasFigures ? `${promptTokens} tokens > ${contextTokens} maximum` : words;
  // Anthropic's wording, which makes its clients shorten the conversation.
  const message = overflow ? `prompt is too long: ${problem}` : words;
  const type = ERROR_TYPES[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
  return { type: "error", error: { type, message, details: null } };
}
