import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { toolInput } from "../tool-calls.ts";
import type { ChatEvent, Speaker } from "../voice.ts";

const NANOS_PER_MS = 1_000_000;

/** How each of the two paths writes a piece of its answer. */
export type PieceForm = (piece: { content?: string; thinking?: string; tool_calls?: object[] }) => object;

export const asMessage: PieceForm = ({ content = "", ...more }) => ({
  message: { role: "assistant", content, ...more },
});
export const asResponse: PieceForm = ({ content = "", ...more }) => ({ response: content, ...more });

export interface OllamaSpeakerOptions {
  model: string;
  form: PieceForm;
  /** Whether the client wants to see reasoning. */
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

  /** Clients parse every line, so an empty line would be an error. */
  get keepAlive(): string {
    return this.#line(this.options.form({}));
  }

  #head(): { model: string; created_at: string } {
    const { model, now } = this.options;
    return { model, created_at: new Date(now()).toISOString() };
  }

  #line(fields: object): string {
    return `${JSON.stringify({ ...this.#head(), ...fields, done: false })}\n`;
  }

  write(event: ChatEvent): string {
    const { form, thinking } = this.options;
    switch (event.type) {
      case "reasoning":
        return thinking ? this.#line(form({ thinking: event.text })) : "";
      case "text":
      case "refusal":
        return this.#line(form({ content: event.text }));
      case "tool_end":
        return this.#line(form({ tool_calls: [callOf(event.call)] }));
      case "finish":
        return `${JSON.stringify({ ...this.#head(), ...form({}), ...this.#ending(event.finish, event.usage) })}\n`;
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
    const { form, thinking } = this.options;
    const piece = form({
      content: text || refusal,
      ...(thinking && reasoning && { thinking: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map(callOf) }),
    });
    return JSON.stringify({ ...this.#head(), ...piece, ...this.#ending(finish, usage) });
  }

  /** The answer to a request that only loads the model. */
  loaded(): object {
    return { ...this.#head(), ...this.options.form({}), done: true, done_reason: "load" };
  }
}
