import { isObject } from "../../../kernel/json.ts";
import type { Choice } from "../stream/chunk-normaliser.ts";
import { type Finish, finishOf, reasoningOf, type TokenCounts, textOf } from "./chat-answer.ts";
import { type ToolCallDelta, ToolCalls } from "./tool-calls.ts";
import type { Failure } from "./voice.ts";

/** What happens in a streamed answer, in order and one thing at a time. */
export type ChatEvent =
  | { type: "start"; model: string; createdSeconds: number }
  | { type: "reasoning" | "text" | "refusal"; text: string }
  | { type: "tool_start"; id: string; name: string }
  | { type: "tool_arguments"; text: string }
  | { type: "tool_end" }
  | { type: "finish"; finish: Finish; usage: TokenCounts }
  | { type: "failure"; failure: Failure };

const NOTHING: readonly ChatEvent[] = [];

/** Splits the deltas of a chat into events. Only the first choice is used. */
export class ChatEvents {
  readonly #calls = new ToolCalls();
  #finish: Finish | null = null;

  read(choice: Choice): readonly ChatEvent[] {
    const { index, delta } = choice;
    if (index !== 0) return NOTHING;
    const events: ChatEvent[] = [];
    this.#text(events, "reasoning", reasoningOf(delta));
    this.#text(events, "text", textOf(delta.content));
    this.#text(events, "refusal", textOf(delta.refusal));
    if (Array.isArray(delta.tool_calls)) {
      for (const call of delta.tool_calls.filter(isObject))
        events.push(...this.#calls.add(call as ToolCallDelta));
    }
    this.#finish ??= finishOf(choice);
    return events;
  }

  #text(events: ChatEvent[], type: "reasoning" | "text" | "refusal", text: string): void {
    if (text === "") return;
    if (this.#calls.count > 0) events.push(...this.#calls.close());
    events.push({ type, text });
  }

  end(usage: TokenCounts): ChatEvent[] {
    const reason = this.#calls.count > 0 ? "tool_calls" : "stop";
    return [
      ...this.#calls.close(),
      { type: "finish", finish: this.#finish ?? { reason, stopSequence: null }, usage },
    ];
  }
}
