import { isObject, textOf } from "../../../kernel/json.ts";
import { BackendError } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import type { StreamConverter } from "../../shared/converted-stream.ts";
import { type ChatAnswer, type ChatUsage, chatUsageOf } from "../dialect.ts";

export type Item = Record<string, unknown>;

const objects = (value: unknown): Item[] => (Array.isArray(value) ? value.filter(isObject) : []);
const joined = (parts: readonly Item[], type: string, field: string): string =>
  parts.map((part) => (part.type === type ? textOf(part[field]) : "")).join("");

function failureIn(response: Record<string, unknown>): BackendError {
  const told = isObject(response.error) ? response.error : {};
  const isBusy = told.code === "server_is_overloaded" || told.code === "slow_down";
  const status = told.code === "rate_limit_exceeded" ? 429 : isBusy ? 503 : 500;
  const words = textOf(told.message) || "the upstream failed";
  return new BackendError("upstream", words, status).having(chatUsage(response));
}

/** The parts have the same names as in chats. */
export function chatUsage({ usage, service_tier }: Record<string, unknown>): ChatUsage | null {
  if (!isObject(usage)) return null;
  return chatUsageOf({
    prompt_tokens: usage.input_tokens,
    completion_tokens: usage.output_tokens,
    prompt_tokens_details: usage.input_tokens_details,
    completion_tokens_details: usage.output_tokens_details,
    cost: usage.cost,
    service_tier,
  });
}

export function responsesAnswer(response: Record<string, unknown>): ChatAnswer {
  if (response.status === "failed") throw failureIn(response);
  if (!Array.isArray(response.output))
    throw new BackendError("transport", "the upstream answered without `output`");
  const output = objects(response.output);
  const said = output.filter(({ type }) => type === "message").flatMap(({ content }) => objects(content));
  const thoughts = output.filter(({ type }) => type === "reasoning");
  const calls = output.flatMap((item) =>
    item.type === "function_call"
      ? [{ id: textOf(item.call_id), name: textOf(item.name), arguments: textOf(item.arguments) || "{}" }]
      : [],
  );
  const reason = isObject(response.incomplete_details) ? response.incomplete_details.reason : null;
  return {
    text: joined(said, "output_text", "text"),
    refusal: joined(said, "refusal", "refusal"),
    reasoning: thoughts
      .map(
        (item) =>
          joined(objects(item.summary), "summary_text", "text") ||
          joined(objects(item.content), "reasoning_text", "text"),
      )
      .join("\n\n"),
    calls,
    finishReason:
      response.status === "incomplete"
        ? reason === "content_filter"
          ? "content_filter"
          : "length"
        : calls.length > 0
          ? "tool_calls"
          : "stop",
    usage: chatUsage(response),
    content: thoughts.length > 0 ? output.map(sentBack) : null,
  };
}

/** An item as it is sent back: its state is the server's own. */
const sentBack = ({ status: _, ...item }: Item): Item => item;

export class ResponsesStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  /** The place of each call among the calls, by its place in the output. */
  readonly #calls = new Map<unknown, { index: number; hasArguments: boolean }>();
  /** Items as they were when each was done: the last event of some servers has none. */
  readonly #items: Item[] = [];
  #hasThoughts = false;

  failureOf(event: Record<string, unknown>): BackendError | null {
    if (event.type === "error") return failureIn(isObject(event.error) ? event : { error: event });
    if (event.type !== "response.failed") return null;
    return failureIn(isObject(event.response) ? event.response : {});
  }

  deltas(event: Record<string, unknown>): ChatDelta[] {
    const item = isObject(event.item) ? event.item : {};
    switch (event.type) {
      case "response.output_item.added":
        return item.type === "function_call" ? this.#begin(event.output_index, item) : [];
      case "response.output_text.delta":
        return [{ content: textOf(event.delta) }];
      case "response.refusal.delta":
        return [{ refusal: textOf(event.delta) }];
      case "response.reasoning_summary_part.added":
        return this.#hasThoughts ? [{ reasoning_content: "\n\n" }] : [];
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        this.#hasThoughts = true;
        return [{ reasoning_content: textOf(event.delta) }];
      case "response.function_call_arguments.delta":
        return this.#arguments(event.output_index, textOf(event.delta));
      case "response.output_item.done":
        return this.#itemDone(event.output_index, item);
      case "response.completed":
      case "response.incomplete":
        this.#end(isObject(event.response) ? event.response : {});
        return [];
      default:
        return [];
    }
  }

  #begin(place: unknown, item: Item): ChatDelta[] {
    const index = this.#calls.size;
    this.#calls.set(place, { index, hasArguments: false });
    const call = { id: textOf(item.call_id), name: textOf(item.name), arguments: "" };
    return [{ tool_calls: [openedCall(index, call)] }];
  }

  #arguments(place: unknown, args: string): ChatDelta[] {
    const call = this.#calls.get(place);
    if (!call || args === "") return [];
    call.hasArguments = true;
    return [{ tool_calls: [{ index: call.index, function: { arguments: args } }] }];
  }

  #itemDone(place: unknown, item: Item): ChatDelta[] {
    this.#items.push(item);
    if (item.type !== "function_call") return [];
    const opened = this.#calls.has(place) ? [] : this.#begin(place, item);
    if (this.#calls.get(place)!.hasArguments) return opened;
    return [...opened, ...this.#arguments(place, textOf(item.arguments) || "{}")];
  }

  #end(response: Record<string, unknown>): void {
    const hasOutput = Array.isArray(response.output) && response.output.length > 0;
    this.answer = responsesAnswer(hasOutput ? response : { ...response, output: this.#items });
  }
}
