import { isObject, membersOf, textOf } from "../../../kernel/json.ts";
import { BackendError, type NativeReader } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import {
  type ChatAnswer,
  type ChatUsage,
  chatUsageOf,
  errorMessage,
  eventText,
  type StreamConverter,
  sealed,
} from "../dialect.ts";

export type Item = Record<string, unknown>;

const objects = (value: unknown): Item[] => (Array.isArray(value) ? value.filter(isObject) : []);
const joined = (parts: readonly Item[], type: string, field: string): string =>
  parts.map((part) => (part.type === type ? textOf(part[field]) : "")).join("");

function failureIn(response: Record<string, unknown>): BackendError {
  const { code } = membersOf(response.error);
  const isBusy = code === "server_is_overloaded" || code === "slow_down";
  const status = code === "rate_limit_exceeded" ? 429 : isBusy ? 503 : 500;
  return new BackendError("upstream", errorMessage(response.error), status).having(chatUsage(response));
}

function outputOf({ output }: Record<string, unknown>): unknown[] {
  if (Array.isArray(output)) return output;
  throw new BackendError("transport", "the upstream answered without `output`");
}

/** The details have the same names as in chats. */
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
  const output = outputOf(response).filter(isObject);
  const said = output.filter(({ type }) => type === "message").flatMap(({ content }) => objects(content));
  const thoughts = output.filter(({ type }) => type === "reasoning");
  const calls = output.flatMap((item) =>
    item.type === "function_call"
      ? [{ id: textOf(item.call_id), name: textOf(item.name), arguments: textOf(item.arguments) || "{}" }]
      : [],
  );
  const { reason } = membersOf(response.incomplete_details);
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

const sentBack = ({ status: _, ...item }: Item): Item => item;

export class ResponsesStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  /** Index of each call among the calls, by its index in the output. */
  readonly #calls = new Map<unknown, { index: number; hasArguments: boolean }>();
  /** Finished items; the last event of some servers does not repeat them. */
  readonly #items: Item[] = [];
  #hasThoughts = false;

  failureOf(event: Record<string, unknown>): BackendError | null {
    if (event.type === "error") return failureIn(isObject(event.error) ? event : { error: event });
    if (event.type !== "response.failed") return null;
    return failureIn(membersOf(event.response));
  }

  deltas(event: Record<string, unknown>): ChatDelta[] {
    const item = membersOf(event.item);
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
        this.#end(membersOf(event.response));
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

const SEALED = "encrypted_content";

export class ResponsesReader implements NativeReader {
  usage: unknown = null;
  isComplete = false;
  get isCounted(): boolean {
    return this.usage !== null;
  }
  isOver = false;
  failure: string | null = null;
  #response: Item = {};
  #sequence = -1;
  readonly #done: Item[] = [];
  /** The unfinished item, and its text so far. */
  #open: Item | null = null;
  #openText = "";
  /** Whether the item came in pieces, which are counted; other items are counted when they are done. */
  #hasPieces = false;

  read(event: Item): unknown {
    if (typeof event.sequence_number === "number") this.#sequence = event.sequence_number;
    const response = isObject(event.response) ? event.response : null;
    switch (event.type) {
      case "response.created":
      case "response.queued":
      case "response.in_progress":
        if (response) this.#response = response;
        return null;
      case "response.output_item.added":
        this.#open = membersOf(event.item);
        this.#openText = "";
        this.#hasPieces = false;
        return null;
      case "response.output_item.done":
        this.#open = null;
        if (isObject(event.item)) this.#done.push(event.item);
        if (!this.#hasPieces) return sealed(event.item, SEALED);
        this.#hasPieces = false;
        return null;
      case "response.completed":
      case "response.incomplete":
        this.isComplete = this.isOver = true;
        if (response) {
          this.#response = response;
          this.usage = chatUsage(response);
        }
        // Usually repeats the items; some servers send them only here.
        return this.#done.length === 0 && !this.#hasPieces ? response?.output : null;
      case "response.failed":
        this.failure = errorMessage(response?.error);
        this.usage = response && chatUsage(response);
        return null;
      case "error":
        this.failure = errorMessage(isObject(event.error) ? event.error : event);
        return null;
      default:
        if (event.delta === undefined) return null;
        this.#hasPieces = true;
        if (typeof event.delta === "string") this.#openText += event.delta;
        return event.delta;
    }
  }

  whole(response: Item): unknown {
    this.usage = chatUsage(response);
    if (response.status === "failed")
      throw new BackendError("upstream", errorMessage(response.error), 500).having(this.usage);
    const output = outputOf(response);
    this.#response = response;
    this.isComplete = this.isOver = true;
    return output.map((item) => sealed(item, SEALED));
  }

  limited(usage: { promptTokens: number; completionTokens: number } | null): string {
    const cut = this.#open && cutItem(this.#open, this.#openText);
    const output = cut ? [...this.#done, cut] : this.#done;
    const counts = usage && {
      input_tokens: usage.promptTokens,
      output_tokens: usage.completionTokens,
      total_tokens: usage.promptTokens + usage.completionTokens,
    };
    const response = {
      ...this.#response,
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output,
      usage: counts,
    };
    return (
      (cut ? this.#event("response.output_item.done", { output_index: this.#done.length, item: cut }) : "") +
      this.#event("response.incomplete", { response })
    );
  }

  failed(message: string): string {
    return this.#event("error", { code: "server_error", message, param: null });
  }

  #event(type: string, fields: object): string {
    return eventText({ type, sequence_number: ++this.#sequence, ...fields }, type);
  }
}

function cutItem(item: Item, text: string): Item {
  const status = "incomplete";
  if (item.type === "message")
    return { ...item, status, content: [{ type: "output_text", text, annotations: [], logprobs: [] }] };
  return item.type === "function_call" ? { ...item, status, arguments: text } : { ...item, status };
}
