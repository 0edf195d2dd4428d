import type { ReplyWriter } from "@model-gateway/wire/http";
import type { Clock } from "../../../kernel/clock.ts";
import type { ServiceError } from "../../../kernel/errors.ts";
import { isObject, textOf } from "../../../kernel/json.ts";
import type { AnswerHead } from "../call/answer.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import type { ChatChunk, Choice } from "../stream/chat-meter.ts";
import type { Listener } from "../turn/chat-turn.ts";
import { type Finish, finishOf, reasoningOf, tokenCounts } from "./chat-answer.ts";
import { ToolCalls } from "./tool-calls.ts";
import { type ChatEvent, failureOf, type Speaker } from "./voice.ts";

/** Proxies cut silent connections, some after less than a minute. */
const SILENCE_MS_MAX = 10_000;

/** Writes the first choice of a streamed answer in its speaker's format. */
export class SpokenStream implements Listener {
  readonly #calls = new ToolCalls();
  #finish: Finish | null = null;
  #writer: ReplyWriter | null = null;
  #waiting = "";
  #hasBegun = false;
  /** The upstream's latest usage report, unchanged. */
  #reported: Record<string, unknown> | null = null;
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

  #begin({ model, created }: Pick<AnswerHead, "model" | "created">): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#tell({ type: "start", model, createdSeconds: created });
  }
  /** Takes a chunk whose head the meter has completed. */
  chunk(chunk: ChatChunk, choices: readonly Choice[]): void {
    this.#begin(chunk as unknown as AnswerHead);
    if (isObject(chunk.usage)) this.#reported = chunk.usage;
    for (const choice of choices) if (choice.index === 0) this.#read(choice);
  }
  #read(choice: Choice): void {
    const { delta } = choice;
    this.#text("reasoning", reasoningOf(delta));
    this.#text("text", textOf(delta.content));
    this.#text("refusal", textOf(delta.refusal));
    if (Array.isArray(delta.tool_calls))
      for (const call of delta.tool_calls.filter(isObject)) this.#tell(...this.#calls.add(call));
    this.#finish ??= finishOf(choice);
  }
  #text(type: "reasoning" | "text" | "refusal", text: string): void {
    if (text === "") return;
    if (this.#calls.count > 0) this.#tell(...this.#calls.close());
    this.#tell({ type, text });
  }
  finish(settled: ReportedUsage | null, head: AnswerHead): void {
    this.#begin(head);
    const reason = this.#calls.count > 0 ? "tool_calls" : "stop";
    const finish = this.#finish ?? { reason, stopSequence: null };
    this.#tell(...this.#calls.close(), {
      type: "finish",
      finish,
      usage: tokenCounts(settled, this.#reported),
    });
  }
  error(failure: ServiceError): void {
    this.#tell({ type: "failure", failure: failureOf(failure) });
  }
  #tell(...events: ChatEvent[]): void {
    for (const event of events) this.#waiting += this.speaker.write(event);
  }

  write(): boolean {
    if (this.#waiting !== "") return this.#pass();
    // Reasoning that the client does not want produces no output; keep the connection alive meanwhile.
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
