import { type ServiceError, toServiceError } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import type { ChatChunk, Choice } from "../stream/chat-meter.ts";
import type { Sink } from "../stream/relay.ts";

export interface TurnUsage extends ReportedUsage {
  /** The upstream's own report, which may have details: cached tokens, reasoning tokens. */
  reported: Record<string, unknown> | null;
}

/** Receives a streamed answer: `begin`, each `delta`, `finish` or `error`. It buffers until `write` or `end`. */
export interface Listener extends Sink {
  begin(head: AnswerHead): void;
  /** Throws when it cannot be converted: the answer then ends with an error. */
  delta(choice: Choice): void;
  finish(usage: TurnUsage | null): void;
  error(failure: ServiceError): void;
}

/** Turns the chunks of a stream into events for a listener: its start, every delta, its end. */
export class Telling {
  #hasBegun = false;
  /** The upstream's newest report of usage, as it wrote it. */
  #reported: Record<string, unknown> | null = null;

  constructor(
    readonly listener: Listener,
    /** Used where the upstream does not report usage. */
    readonly head: AnswerHead,
  ) {}

  chunk(chunk: ChatChunk, choices: readonly Choice[]): void {
    if (!this.#hasBegun) this.#begin(chunk);
    if (isObject(chunk.usage)) this.#reported = chunk.usage;
    for (const choice of choices) this.listener.delta(choice);
  }

  finish(settled: ReportedUsage | null): void {
    try {
      if (!this.#hasBegun) this.#begin({});
      this.listener.finish(settled && { ...settled, reported: this.#reported });
    } catch (error) {
      this.listener.error(toServiceError(error));
    }
  }

  #begin({ id, created, model }: ChatChunk): void {
    this.#hasBegun = true;
    const { head } = this;
    this.listener.begin({
      id: typeof id === "string" ? id : head.id,
      created: typeof created === "number" ? created : head.created,
      model: typeof model === "string" ? model : head.model,
    });
  }
}
