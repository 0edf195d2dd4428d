import type { ReplyWriter } from "@model-gateway/wire/http";
import type { Clock } from "../../../kernel/clock.ts";
import type { ServiceError } from "../../../kernel/errors.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import type { Choice } from "../stream/chat-meter.ts";
import type { Listener, TurnUsage } from "../turn/listener.ts";
import { tokenCounts } from "./chat-answer.ts";
import { type ChatEvent, ChatEvents } from "./chat-events.ts";
import { failureOf, type Speaker } from "./voice.ts";

/** Proxies cut connections that are silent for a minute or less. */
const SILENCE_MS_MAX = 10_000;

/** Writes a streamed answer in its speaker's format, at the client's pace. */
export class SpokenStream implements Listener {
  readonly #events = new ChatEvents((event) => this.#tell(event));
  #writer: ReplyWriter | null = null;
  #waiting = "";
  #wroteAtMs: number;

  constructor(
    readonly speaker: Speaker,
    readonly clock: Clock,
  ) {
    this.#wroteAtMs = clock.now();
  }

  writeTo(writer: ReplyWriter): void {
    this.#writer = writer;
  }

  begin({ model, created }: AnswerHead): void {
    this.#tell({ type: "start", model, createdSeconds: created });
  }
  delta(choice: Choice): void {
    this.#events.read(choice);
  }
  finish(usage: TurnUsage | null): void {
    this.#events.end(tokenCounts(usage));
  }
  error(failure: ServiceError): void {
    this.#tell({ type: "failure", failure: failureOf(failure) });
  }
  #tell(event: ChatEvent): void {
    this.#waiting += this.speaker.write(event);
  }

  write(): boolean {
    if (this.#waiting !== "") return this.#pass();
    // Reasoning that the client did not ask for is not sent, but the connection must be kept alive.
    if (this.clock.now() - this.#wroteAtMs >= SILENCE_MS_MAX) this.keepAlive();
    return true;
  }
  end(): void {
    this.#writer?.end(Buffer.from(this.#waiting));
    this.#waiting = "";
  }
  keepAlive(): void {
    this.#waiting += this.speaker.keepAlive;
    this.#pass();
  }

  #pass(): boolean {
    const text = this.#waiting;
    this.#waiting = "";
    this.#wroteAtMs = this.clock.now();
    return this.#writer?.write(text) ?? true;
  }
}
