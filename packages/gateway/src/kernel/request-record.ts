import type { Clock } from "./clock.ts";
import type { Principal } from "./context.ts";
import { ERRORS, type ServiceError } from "./errors.ts";
import { timeOfId } from "./ids.ts";

/** Where records of ended requests go. */
export interface RecordSink {
  readonly clock: Clock;
  /** Takes the record at once and never throws. */
  ended(record: RequestRecord, nowMs: number): void;
}

/** An attempt that did not bring the answer. */
export interface FailedAttempt {
  backend: string;
  model: string;
  sentMs: number;
  endedMs: number;
  message: string;
}

/** What was asked and answered, which is kept only where the operator turned that on for the key. */
export interface Capture {
  /** Fields of the request: of a chat, or of one for vectors. */
  asked: Record<string, unknown> | null;
  /** The answer so far; null where there is none. */
  answered: (() => unknown) | null;
}

/** What proxies use for a client that closed its connection before it had its answer. */
export const CLIENT_CLOSED_STATUS = 499;
const CLIENT_CLOSED_CODE = "client_left";

/** Where a request goes. */
interface Sent {
  readonly model: string;
  /** Of the backend. */
  readonly name: string;
  readonly reason: string;
}

type UsedField = "promptTokens" | "completionTokens" | "isEstimated";

/** What is noted of few requests. */
interface Seldom {
  /** Of a call without an API key. */
  userId: string | null;
  /** Address of the client, noted for refusals only: looking it up costs more than the rest of the record. */
  clientIp: string | null;
  refId: string | null;
  /** When the latest attempt was sent, if it is not the first. */
  sentMs: number | null;
  failures: readonly FailedAttempt[] | null;
  /** Set where the operator has the key's prompts captured. */
  capture: Capture | null;
  code: string | null;
  message: string | null;
}

const NOTHING: Seldom = {
  userId: null,
  clientIp: null,
  refId: null,
  sentMs: null,
  failures: null,
  capture: null,
  code: null,
  message: null,
};

/**
 * One request while it is served: each part that it passes notes what it knows. Who opened it ends it, unless it was
 * handed to something that goes on, such as a stream or a session. It is on the path of every chat, so noting
 * is mostly assigning a field, and there are few: what a request allocates is what garbage collections cost.
 */
export class RequestRecord {
  readonly startedMs: number;
  /** Something goes on after the call that opened it has returned, and ends it. */
  goesOn = false;
  /** Whose key it is, as soon as that is known. */
  principal: Principal | null = null;
  /** As the client wrote it. */
  modelAsked: string | null = null;
  /** Where the latest attempt went, and why there. */
  route: Sent | null = null;
  attempts = 0;
  firstSentMs = 0;
  /** When the first piece of a streamed answer came; 0: not at all. */
  firstTokenMs = 0;
  promptTokens = 0;
  completionTokens = 0;
  /** As it was charged; null when the model has no price. */
  costNanoUsd: number | null = null;
  isEstimated = false;
  /** HTTP status, also of what came through another door; 0: it has not ended. */
  status = 0;
  seldom: Readonly<Seldom> = NOTHING;

  constructor(
    readonly sink: RecordSink,
    /** The path or method that was called. */
    readonly surface: string,
    /** Ordered by time: it says when the request came. */
    readonly id: string,
  ) {
    this.startedMs = timeOfId(id);
  }

  also(notes: Partial<Seldom>): void {
    this.seldom = { ...this.seldom, ...notes };
  }

  /** The request goes to this backend. */
  sent(route: Sent): void {
    const nowMs = this.sink.clock.now();
    if (this.attempts++ === 0) this.firstSentMs = nowMs;
    else this.also({ sentMs: nowMs });
    this.route = route;
  }

  /** The latest attempt failed. */
  broke(cause: unknown): void {
    const { route, firstSentMs, attempts } = this;
    const { sentMs } = this.seldom;
    const before = this.seldom.failures ?? [];
    if (route === null || before.length >= attempts) return;
    const failure = {
      model: route.model,
      backend: route.name,
      sentMs: sentMs ?? firstSentMs,
      endedMs: this.sink.clock.now(),
      message: cause instanceof Error ? cause.message : "the answer broke off",
    };
    this.also({ failures: [...before, failure] });
  }

  used(
    { promptTokens, completionTokens, isEstimated }: Pick<RequestRecord, UsedField>,
    costNanoUsd: number | null,
  ): void {
    this.promptTokens += promptTokens;
    this.completionTokens += completionTokens;
    this.isEstimated ||= isEstimated;
    if (costNanoUsd !== null) this.costNanoUsd = (this.costNanoUsd ?? 0) + costNanoUsd;
  }

  /** Later calls do nothing. */
  end(status: number, nowMs: number = this.sink.clock.now()): void {
    if (this.status !== 0) return;
    this.status = status;
    this.sink.ended(this, nowMs);
  }

  #failed(status: number, code: string, message: string): void {
    if (this.status === 0) this.also({ code, message });
    this.end(status);
  }

  refused({ kind, message }: ServiceError, status: number = ERRORS[kind].status): void {
    this.#failed(status, ERRORS[kind].code, message);
  }

  /** The client disconnected before it had the whole answer. */
  left(): void {
    this.#failed(CLIENT_CLOSED_STATUS, CLIENT_CLOSED_CODE, "the client disconnected");
  }
}
