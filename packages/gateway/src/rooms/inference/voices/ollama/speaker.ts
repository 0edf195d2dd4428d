import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { toolInput } from "../tool-calls.ts";
import type { ChatEvent, Speaker } from "../voice.ts";

const NANOS_PER_MS = 1_000_000;

/** How one of the two paths writes a piece of its answer. */
export type Said = (said: { content?: string; thinking?: string; tool_calls?: object[] }) => object;

export const asMessage: Said = ({ content = "", ...more }) => ({
  message: { role: "assistant", content, ...more },
});
export const asResponse: Said = ({ content = "", ...more }) => ({ response: content, ...more });

export interface OllamaSpeakerOptions {
  model: string;
  said: Said;
  /** Thoughts are not told to who does not want them. */
  thinking: boolean;
  startedAtMs: number;
  now(): number;
}

const callOf = ({ id, name, arguments: args }: AnsweredCall) => ({
  id,
  function: { name, arguments: toolInput(args) },
});

export class OllamaSpeaker implements Speaker {
  readonly contentType = "application/x-ndjson";
  constructor(readonly options: OllamaSpeakerOptions) {}

  /** Clients parse every line, so that an empty one would be an error. */
  get keepAlive(): string {
    return this.#line(this.options.said({}));
  }

  #head(): { model: string; created_at: string } {
    const { model, now } = this.options;
    return { model, created_at: new Date(now()).toISOString() };
  }

  #line(fields: object): string {
    return `${JSON.stringify({ ...this.#head(), ...fields, done: false })}\n`;
  }

  write(event: ChatEvent): string {
    const { said, thinking } = this.options;
    switch (event.type) {
      case "reasoning":
        return thinking ? this.#line(said({ thinking: event.text })) : "";
      case "text":
      case "refusal":
        return this.#line(said({ content: event.text }));
      case "tool_end":
        return this.#line(said({ tool_calls: [callOf(event.call)] }));
      case "finish":
        return `${JSON.stringify({ ...this.#head(), ...said({}), ...this.#ending(event.finish, event.usage) })}\n`;
      case "failure":
        return `${JSON.stringify({ error: event.failure.message })}\n`;
      default:
        return "";
    }
  }

  #ending({ reason }: Finish, { prompt, completion }: TokenCounts): object {
    const totalNanos = Math.max(1, this.options.now() - this.options.startedAtMs) * NANOS_PER_MS;
    return {
      done: true,
      done_reason: reason === "length" ? "length" : "stop",
      total_duration: totalNanos,
      load_duration: 0,
      prompt_eval_count: prompt,
      prompt_eval_duration: 0,
      eval_count: completion,
      eval_duration: totalNanos,
    };
  }

  whole({ text, refusal, reasoning, calls, finish, usage }: ChatAnswer): string {
    const { said, thinking } = this.options;
    const told = said({
      content: text || refusal,
      ...(thinking && reasoning && { thinking: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map(callOf) }),
    });
    return JSON.stringify({ ...this.#head(), ...told, ...this.#ending(finish, usage) });
  }

  /** The model is there; nothing was asked. */
  loaded(): object {
    return { ...this.#head(), ...this.options.said({}), done: true, done_reason: "load" };
  }
}
