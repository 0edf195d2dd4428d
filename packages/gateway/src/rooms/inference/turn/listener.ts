import type { ServiceError } from "../../../kernel/errors.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import type { Choice } from "../stream/chunk-normaliser.ts";
import type { Sink } from "../stream/relay.ts";

/** The final token counts of an answer. */
export interface TurnUsage extends ReportedUsage {
  /** The upstream's own report, which may have details: cached tokens, reasoning tokens. */
  reported: Record<string, unknown> | null;
}

/**
 * Receives a streamed answer event by event: `begin`, each `delta`, then `finish` or `error`. It buffers its output
 * until `write` or `end` says that the client can have it; the bytes given there are for voices that relay.
 */
export interface Listener extends Sink {
  begin(head: AnswerHead): void;
  /** Throws when it cannot be converted: the answer then ends with an error. */
  delta(choice: Choice): void;
  /** Null: nothing was delivered, so nothing is owed. */
  finish(usage: TurnUsage | null): void;
  error(failure: ServiceError): void;
}
