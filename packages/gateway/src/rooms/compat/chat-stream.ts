import { toServiceError } from "../../kernel/errors.ts";
import { isObject } from "../../kernel/json.ts";
import { type Finish, finishOf, reasoningOf, type TokenCounts, textOf, tokenCounts } from "./chat-answer.ts";
import { type ChatFailure, failureOf } from "./failure.ts";
import type { SseItem } from "./sse-reader.ts";
import { type ToolCallDelta, ToolCalls } from "./tool-calls.ts";

/** What happens in a streamed answer, in order and one thing at a time. */
export type ChatEvent =
  | { type: "start"; model: string; createdSeconds: number }
  | { type: "reasoning" | "text" | "refusal"; text: string }
  | { type: "tool_start"; id: string; name: string }
  | { type: "tool_arguments"; text: string }
  | { type: "tool_end" }
  | { type: "finish"; finish: Finish; usage: TokenCounts }
  | { type: "failure"; failure: ChatFailure };

const DONE = "[DONE]";

/** Reads the chunks of a chat-completions stream as events. */
export class ChatStream {
  readonly #calls = new ToolCalls();
  #started = false;
  #ended = false;
  #finish: Finish | null = null;
  #usage: TokenCounts | null = null;
  #answerBytes = 0;

  /** `estimate` counts for upstreams that report no usage, from the bytes of text that they sent. */
  constructor(readonly estimate: (answerBytes: number) => TokenCounts) {}

  read({ data }: SseItem): ChatEvent[] {
    if (data === null || this.#ended) return [];
    if (data === DONE) return this.#end();
    let chunk: unknown;
    try {
      chunk = JSON.parse(data);
    } catch {
      return this.fail(failureOf("the upstream sent a chunk that is not JSON", 502));
    }
    if (!isObject(chunk)) return [];
    if (chunk.error) return this.fail(failureOf(chunk, 502));
    try {
      return this.#chunk(chunk);
    } catch (error) {
      return this.fail(failureOf({ message: toServiceError(error).message }, 502));
    }
  }

  /** The bytes ended. Without a finish that is a cut, and must not look like a whole answer. */
  end(): ChatEvent[] {
    if (this.#ended) return [];
    if (this.#finish) return this.#end();
    return this.fail(failureOf("the answer was cut off before its end", 502));
  }

  fail(failure: ChatFailure): ChatEvent[] {
    if (this.#ended) return [];
    this.#ended = true;
    return [{ type: "failure", failure }];
  }

  #chunk(chunk: Record<string, unknown>): ChatEvent[] {
    const events: ChatEvent[] = [];
    if (!this.#started) {
      this.#started = true;
      const created = typeof chunk.created === "number" ? chunk.created : 0;
      events.push({ type: "start", model: textOf(chunk.model), createdSeconds: created });
    }
    if (chunk.usage) this.#usage = tokenCounts(chunk.usage);
    const choices = Array.isArray(chunk.choices) ? chunk.choices.filter(isObject) : [];
    const choice = choices.find(({ index }) => (index ?? 0) === 0);
    if (!choice) return events;
    const delta = isObject(choice.delta) ? choice.delta : {};
    this.#text(events, "reasoning", reasoningOf(delta));
    this.#text(events, "text", textOf(delta.content));
    this.#text(events, "refusal", textOf(delta.refusal));
    if (Array.isArray(delta.tool_calls)) {
      this.#answerBytes += JSON.stringify(delta.tool_calls).length;
      for (const call of delta.tool_calls.filter(isObject))
        events.push(...this.#calls.add(call as ToolCallDelta));
    }
    this.#finish ??= finishOf(choice);
    return events;
  }

  #text(events: ChatEvent[], type: "reasoning" | "text" | "refusal", text: string): void {
    if (text === "") return;
    this.#answerBytes += Buffer.byteLength(text);
    events.push(...this.#calls.close(), { type, text });
  }

  #end(): ChatEvent[] {
    this.#ended = true;
    const reason = this.#calls.count > 0 ? "tool_calls" : "stop";
    const finish = this.#finish ?? { reason, stopSequence: null };
    const usage = this.#usage ?? this.estimate(this.#answerBytes);
    const start: ChatEvent[] = this.#started ? [] : [{ type: "start", model: "", createdSeconds: 0 }];
    return [...start, ...this.#calls.close(), { type: "finish", finish, usage }];
  }
}
