import type { ServiceError } from "../../../kernel/errors.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import type { Choice } from "../stream/chunk-normaliser.ts";
import type { Sink } from "../stream/relay.ts";

/** What an answer comes to. */
export interface TurnUsage extends ReportedUsage {
  /** The upstream's own report, which may say more: cached tokens, thoughts. */
  reported: Record<string, unknown> | null;
}

/**
 * Hears a streamed answer event by event: `begin`, each `delta`, then `finish` or `error`. It keeps what it makes of
 * them until `write` or `end` says that the client can have it; the bytes given there are for those who relay.
 */
export interface Listener extends Sink {
  begin(head: AnswerHead): void;
  /** Throws when nothing can be made of it: the answer then ends with an error. */
  delta(choice: Choice): void;
  /** Null: nothing was delivered, so nothing is owed. */
  finish(usage: TurnUsage | null): void;
  error(failure: ServiceError): void;
}
