import { fail } from "../../../../kernel/errors.ts";
import type { ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import type { ChatEvent } from "../chat-events.ts";
import { toolInput } from "../tool-calls.ts";
import type { Speaker } from "../voice.ts";

const NANOS_PER_MS = 1_000_000;
/** A call is told when it is whole; one with longer arguments is refused. */
const ARGUMENTS_CHARS_MAX = 8 * 1024 * 1024;

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

const callOf = ({ id, name, text }: { id: string; name: string; text: string }) => ({
  id,
  function: { name, arguments: toolInput(text || "{}") },
});

export class OllamaSpeaker implements Speaker {
  readonly contentType = "application/x-ndjson";
  #call: { id: string; name: string; text: string } | null = null;

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
      case "start":
        return "";
      case "reasoning":
        return thinking ? this.#line(said({ thinking: event.text })) : "";
      case "text":
      case "refusal":
        return this.#line(said({ content: event.text }));
      case "tool_start":
        this.#call = { id: event.id, name: event.name, text: "" };
        return "";
      case "tool_arguments":
        if (this.#call) this.#call.text += event.text;
        if (this.#call && this.#call.text.length > ARGUMENTS_CHARS_MAX)
          fail("bad_gateway", `a tool call has more than ${ARGUMENTS_CHARS_MAX} characters of arguments`);
        return "";
      case "tool_end":
        return this.#endCall();
      case "finish":
        return `${JSON.stringify({ ...this.#head(), ...said({}), ...this.#ending(event.finish, event.usage) })}\n`;
      case "failure":
        return `${JSON.stringify({ error: event.failure.message })}\n`;
    }
  }

  #endCall(): string {
    const call = this.#call;
    this.#call = null;
    return call ? this.#line(this.options.said({ tool_calls: [callOf(call)] })) : "";
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
      ...(calls.length > 0 && { tool_calls: calls.map((call) => callOf({ ...call, text: call.arguments })) }),
    });
    return JSON.stringify({ ...this.#head(), ...told, ...this.#ending(finish, usage) });
  }

  /** The model is there; nothing was asked. */
  loaded(): object {
    return { ...this.#head(), ...this.options.said({}), done: true, done_reason: "load" };
  }
}
