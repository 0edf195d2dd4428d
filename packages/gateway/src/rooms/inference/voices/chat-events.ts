import { isObject } from "../../../kernel/json.ts";
import type { Choice } from "../stream/chat-meter.ts";
import { type Finish, finishOf, reasoningOf, type TokenCounts, textOf } from "./chat-answer.ts";
import { ToolCalls } from "./tool-calls.ts";
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

/** Splits the deltas of a chat into events. Only the first choice is used. */
export class ChatEvents {
  readonly #calls = new ToolCalls();
  #finish: Finish | null = null;

  constructor(readonly tell: (event: ChatEvent) => void) {}

  read(choice: Choice): void {
    const { index, delta } = choice;
    if (index !== 0) return;
    this.#text("reasoning", reasoningOf(delta));
    this.#text("text", textOf(delta.content));
    this.#text("refusal", textOf(delta.refusal));
    if (Array.isArray(delta.tool_calls)) {
      for (const call of delta.tool_calls.filter(isObject)) this.#calls.add(call).forEach(this.tell);
    }
    this.#finish ??= finishOf(choice);
  }

  #text(type: "reasoning" | "text" | "refusal", text: string): void {
    if (text === "") return;
    if (this.#calls.count > 0) this.#calls.close().forEach(this.tell);
    this.tell({ type, text });
  }

  end(usage: TokenCounts): void {
    const reason = this.#calls.count > 0 ? "tool_calls" : "stop";
    this.#calls.close().forEach(this.tell);
    this.tell({ type: "finish", finish: this.#finish ?? { reason, stopSequence: null }, usage });
  }
}
