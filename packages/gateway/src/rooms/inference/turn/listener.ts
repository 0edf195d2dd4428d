import type { ServiceError } from "../../../kernel/errors.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import type { ChatChunk, Choice } from "../stream/chat-meter.ts";
import type { Sink } from "../stream/relay.ts";

/** Receives a streamed answer: every chunk, then `finish` or `error`. It buffers until `write` or `end`. */
export interface Listener extends Sink {
  /** Throws when it cannot be converted: the answer then ends with an error. */
  chunk(chunk: ChatChunk, choices: readonly Choice[]): void;
  /** `head` is for an answer without a chunk. */
  finish(settled: ReportedUsage | null, head: AnswerHead): void;
  error(failure: ServiceError): void;
}
