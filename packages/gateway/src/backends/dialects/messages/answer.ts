import { isObject, jsonIn, membersOf, textOf } from "../../../kernel/json.ts";
import { BackendError, type NativeReader } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import {
  type ChatAnswer,
  type ChatUsage,
  chatUsageOf,
  errorMessage,
  eventText,
  largerCounts,
  type StreamConverter,
  sealed,
  sumOf,
} from "../dialect.ts";

type Block = Record<string, unknown>;

const FINISHES: Readonly<Record<string, string>> = {
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  refusal: "content_filter",
};
const isSealed = ({ type }: Block): boolean => type === "thinking" || type === "redacted_thinking";

function blocksOf({ content }: Record<string, unknown>): unknown[] {
  if (Array.isArray(content)) return content;
  throw new BackendError("transport", "the upstream answered without `content`");
}

/** Anthropic's input does not include cache reads and writes; a chat's prompt does. Compactions are billed on top. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const iterations = Array.isArray(usage.iterations) ? usage.iterations.map(membersOf) : [];
  const all = [usage, ...iterations.filter(({ type }) => type === "compaction")];
  const total = (name: string) => sumOf(...all.map((each) => each[name]));
  const writes = all.map((each) => membersOf(each.cache_creation));
  const hour = sumOf(...writes.map((each) => each.ephemeral_1h_input_tokens));
  const cached = total("cache_read_input_tokens");
  const written =
    total("cache_creation_input_tokens") ??
    sumOf(...writes.map((each) => each.ephemeral_5m_input_tokens), hour);
  return chatUsageOf({
    prompt_tokens: usage.input_tokens == null ? undefined : sumOf(total("input_tokens"), cached, written),
    completion_tokens: total("output_tokens"),
    prompt_tokens_details: {
      cached_tokens: cached,
      cache_write_tokens: written,
      cache_write_1h_tokens: hour,
    },
    completion_tokens_details: { reasoning_tokens: membersOf(usage.output_tokens_details).thinking_tokens },
    cost: usage.cost,
  });
}

export function messagesAnswer(message: Record<string, unknown>): ChatAnswer {
  const blocks = blocksOf(message).filter(isObject);
  const calls = blocks.flatMap((block) =>
    block.type === "tool_use"
      ? [{ id: textOf(block.id), name: textOf(block.name), arguments: JSON.stringify(block.input ?? {}) }]
      : [],
  );
  return {
    text: blocks.map((block) => (block.type === "text" ? textOf(block.text) : "")).join(""),
    reasoning: blocks.map((block) => (block.type === "thinking" ? textOf(block.thinking) : "")).join(""),
    refusal: "",
    calls,
    finishReason: FINISHES[textOf(message.stop_reason)] ?? "stop",
    stopSequence: message.stop_sequence ?? undefined,
    usage: chatUsage(message.usage),
    content: blocks.some(isSealed) ? blocks : null,
  };
}

export class MessagesStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  readonly #blocks: Block[] = [];
  /** Calls by the index of their block, with the JSON of their arguments so far. */
  readonly #calls = new Map<number, { index: number; json: string }>();
  #message: Record<string, unknown> = {};
  #usage: Record<string, unknown> = {};

  failureOf({ type, error }: Record<string, unknown>): BackendError | null {
    if (type !== "error") return null;
    const isBusy = membersOf(error).type === "overloaded_error";
    return new BackendError("upstream", errorMessage(error), isBusy ? 529 : 500);
  }

  deltas(event: Record<string, unknown>): ChatDelta[] {
    const index = Number(event.index ?? 0);
    switch (event.type) {
      case "message_start":
        this.#message = membersOf(event.message);
        this.#usage = largerCounts(this.#usage, membersOf(this.#message.usage));
        return [];
      case "content_block_start":
        return this.#start(index, membersOf(event.content_block));
      case "content_block_delta":
        // The last count does not include this piece.
        this.#usage.output_tokens = undefined;
        return this.#delta(index, membersOf(event.delta));
      case "content_block_stop":
        return this.#calls.get(index)?.json === "" ? this.#arguments(index, "{}") : [];
      case "message_delta":
        Object.assign(this.#message, membersOf(event.delta));
        this.#usage = largerCounts(this.#usage, membersOf(event.usage));
        return [];
      case "message_stop":
        this.#end();
        return [];
      default:
        return [];
    }
  }

  #start(index: number, block: Block): ChatDelta[] {
    this.#blocks[index] = block;
    if (block.type === "text" && textOf(block.text)) return [{ content: textOf(block.text) }];
    if (block.type !== "tool_use") return [];
    const call = { id: textOf(block.id), name: textOf(block.name), arguments: "" };
    const delta = openedCall(this.#calls.size, call);
    this.#calls.set(index, { index: delta.index, json: "" });
    return [{ tool_calls: [delta] }];
  }

  #arguments(index: number, args: string): ChatDelta[] {
    return [{ tool_calls: [{ index: this.#calls.get(index)!.index, function: { arguments: args } }] }];
  }

  #delta(index: number, delta: Record<string, unknown>): ChatDelta[] {
    const block = this.#blocks[index];
    if (!block) return [];
    switch (delta.type) {
      case "text_delta":
        block.text = textOf(block.text) + textOf(delta.text);
        return [{ content: textOf(delta.text) }];
      case "thinking_delta":
        block.thinking = textOf(block.thinking) + textOf(delta.thinking);
        return delta.thinking ? [{ reasoning_content: textOf(delta.thinking) }] : [];
      case "signature_delta":
        block.signature = delta.signature;
        return [];
      case "input_json_delta": {
        const json = textOf(delta.partial_json);
        const call = this.#calls.get(index);
        if (!call || json === "") return [];
        call.json += json;
        return this.#arguments(index, json);
      }
      default:
        return [];
    }
  }

  /** The stop reason comes with the last counts, so the answer is complete without `message_stop`. */
  ended(): void {
    if (this.#message.stop_reason != null) this.#end();
  }

  #end(): void {
    for (const [index, { json }] of this.#calls) {
      const block = this.#blocks[index]!;
      block.input = json === "" ? (block.input ?? {}) : (jsonIn(json) ?? {});
    }
    const content = this.#blocks.filter(Boolean);
    this.answer = messagesAnswer({ ...this.#message, content, usage: this.#usage });
  }
}

/** The text of a plain text delta, which nearly every event is; null for others. */
const textOnly = (delta: unknown): string | null =>
  isObject(delta) &&
  delta.type === "text_delta" &&
  typeof delta.text === "string" &&
  Object.keys(delta).length === 2
    ? delta.text
    : null;

export class MessagesReader implements NativeReader {
  isComplete = false;
  /** Not set by the counts of the first event, which come before the answer. */
  isCounted = false;
  isOver = false;
  failure: string | null = null;
  #usage: Record<string, unknown> | null = null;
  #openBlock: number | null = null;

  get usage(): unknown {
    return chatUsage(this.#usage);
  }

  read(event: Record<string, unknown>): unknown {
    switch (event.type) {
      case "message_start":
        if (isObject(event.message)) this.#count(event.message.usage);
        return null;
      case "content_block_start":
        this.#openBlock = Number(event.index);
        return event.content_block;
      case "content_block_delta":
        this.isCounted = false;
        return textOnly(event.delta) ?? sealed(event.delta, "signature");
      case "content_block_stop":
        this.#openBlock = null;
        return null;
      case "message_delta":
        this.#count(event.usage);
        this.isCounted = isObject(event.usage) && event.usage.output_tokens != null;
        this.isComplete = true;
        return null;
      case "message_stop":
        this.isComplete = this.isOver = true;
        return null;
      case "error":
        this.failure = errorMessage(event.error);
        return null;
      default:
        return event.delta;
    }
  }

  #count(usage: unknown): void {
    if (isObject(usage)) this.#usage = largerCounts(this.#usage ?? {}, usage);
  }

  whole(message: Record<string, unknown>): unknown {
    const blocks = blocksOf(message);
    this.#count(message.usage);
    this.isComplete = this.isOver = this.isCounted = true;
    return blocks.map((block) => sealed(block, "signature"));
  }

  limited(usage: { promptTokens: number; completionTokens: number } | null): string {
    const closed =
      this.#openBlock === null
        ? ""
        : eventText({ type: "content_block_stop", index: this.#openBlock }, "content_block_stop");
    const delta = { stop_reason: "max_tokens", stop_sequence: null };
    const last = { ...this.#usage, output_tokens: usage?.completionTokens ?? 0 };
    return (
      closed +
      eventText({ type: "message_delta", delta, usage: last }, "message_delta") +
      eventText({ type: "message_stop" }, "message_stop")
    );
  }

  failed(message: string): string {
    return eventText({ type: "error", error: { type: "api_error", message } }, "error");
  }
}
