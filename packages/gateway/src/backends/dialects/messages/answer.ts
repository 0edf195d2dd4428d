import { isObject, jsonIn, textOf } from "../../../kernel/json.ts";
import { BackendError } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import type { StreamConverter } from "../../shared/converted-stream.ts";
import { type ChatAnswer, type ChatUsage, chatUsageOf, largerCounts, sumOf } from "../dialect.ts";

type Block = Record<string, unknown>;

const FINISHES: Readonly<Record<string, string>> = {
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  refusal: "content_filter",
};
const isSealed = ({ type }: Block): boolean => type === "thinking" || type === "redacted_thinking";

const membersOf = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});

/** Anthropic counts what was read from and written to the cache beside the input, the chat form inside it. A compaction is billed beside all of it. */
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
  const blocks = Array.isArray(message.content) ? message.content.filter(isObject) : null;
  if (!blocks) throw new BackendError("transport", "the upstream answered without `content`");
  const texts = blocks.map((block) => (block.type === "text" ? textOf(block.text) : ""));
  const thoughts = blocks.map((block) => (block.type === "thinking" ? textOf(block.thinking) : "")).join("");
  const calls = blocks.flatMap((block) =>
    block.type === "tool_use"
      ? [{ id: textOf(block.id), name: textOf(block.name), arguments: JSON.stringify(block.input ?? {}) }]
      : [],
  );
  return {
    text: texts.join(""),
    reasoning: thoughts,
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
  /** Arguments of each call, as far as they came. */
  readonly #inputs: string[] = [];
  #callCount = 0;
  readonly #callIndexes: number[] = [];
  #message: Record<string, unknown> = {};
  #usage: Record<string, unknown> = {};

  failureOf({ type, error }: Record<string, unknown>): BackendError | null {
    if (type !== "error") return null;
    const words = isObject(error) ? textOf(error.message) : "";
    const isBusy = isObject(error) && error.type === "overloaded_error";
    return new BackendError("upstream", words || "the upstream failed", isBusy ? 529 : 500);
  }

  deltas(event: Record<string, unknown>): ChatDelta[] {
    const index = Number(event.index ?? 0);
    switch (event.type) {
      case "message_start":
        this.#message = isObject(event.message) ? event.message : {};
        if (isObject(this.#message.usage)) this.#usage = largerCounts(this.#usage, this.#message.usage);
        return [];
      case "content_block_start":
        return this.#start(index, isObject(event.content_block) ? event.content_block : {});
      case "content_block_delta":
        // The last count was of what came before.
        this.#usage.output_tokens = undefined;
        return this.#delta(index, isObject(event.delta) ? event.delta : {});
      case "content_block_stop":
        return this.#inputs[index] === "" ? this.#arguments(index, "{}") : [];
      case "message_delta":
        if (isObject(event.delta)) Object.assign(this.#message, event.delta);
        if (isObject(event.usage)) this.#usage = largerCounts(this.#usage, event.usage);
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
    this.#callIndexes[index] = this.#callCount++;
    this.#inputs[index] = "";
    const call = { id: textOf(block.id), name: textOf(block.name), arguments: "" };
    return [{ tool_calls: [openedCall(this.#callIndexes[index], call)] }];
  }

  #arguments(index: number, args: string): ChatDelta[] {
    return [{ tool_calls: [{ index: this.#callIndexes[index]!, function: { arguments: args } }] }];
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
      case "input_json_delta":
        if (this.#inputs[index] === undefined) return [];
        this.#inputs[index] += textOf(delta.partial_json);
        return delta.partial_json ? this.#arguments(index, textOf(delta.partial_json)) : [];
      default:
        return [];
    }
  }

  /** The reason to stop comes with the last figures. */
  ended(): void {
    if (this.#message.stop_reason != null) this.#end();
  }

  #end(): void {
    for (const [index, input] of this.#inputs.entries())
      if (input !== undefined && this.#blocks[index])
        this.#blocks[index].input = parsedInput(input, this.#blocks[index]);
    const content = this.#blocks.filter(Boolean);
    this.answer = messagesAnswer({ ...this.#message, content, usage: this.#usage });
  }
}

const parsedInput = (json: string, block: Block): unknown =>
  json === "" ? (block.input ?? {}) : (jsonIn(json) ?? {});
