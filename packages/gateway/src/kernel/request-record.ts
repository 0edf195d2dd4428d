import type { Clock } from "./clock.ts";
import type { Principal } from "./context.ts";
import { ERRORS, type ServiceError } from "./errors.ts";
import { timeOfId } from "./ids.ts";

/** Where records of ended requests go. */
export interface RecordSink {
  readonly clock: Clock;
  /** Takes the record at once and never throws. */
  ended(record: RequestRecord): void;
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

type UsedField = "promptTokens" | "completionTokens" | "isEstimated";

/**
 * One request while it is served: each part that it passes notes what it knows. Who opened it ends it, unless it was
 * handed to something that goes on, such as a stream or a session. It is on the path of every chat, so noting
 * is assigning a field; everything else happens when records are written.
 */
export class RequestRecord {
  readonly startedMs: number;
  endedMs = 0;
  /** Something goes on after the call that opened it has returned, and ends it. */
  goesOn = false;

  /** Whose key it is, as soon as that is known. */
  principal: Principal | null = null;
  /** Of a call without an API key. */
  userId: string | null = null;
  /** Address of the client, noted for refusals only: looking it up costs more than the rest of the record. */
  clientIp: string | null = null;
  refId: string | null = null;

  /** As the client wrote it. */
  modelAsked: string | null = null;
  /** Where the latest attempt went, and why there. */
  model: string | null = null;
  backend: string | null = null;
  reason: string | null = null;
  attempts = 0;
  firstSentMs = 0;
  sentMs = 0;
  failures: FailedAttempt[] | null = null;
  /** When the first piece of a streamed answer came; 0: not at all. */
  firstTokenMs = 0;
  promptTokens = 0;
  completionTokens = 0;
  /** As it was charged; null when the model has no price. */
  costNanoUsd: number | null = null;
  isEstimated = false;

  /** Set where the operator has the key's prompts captured. */
  capture: Capture | null = null;

  /** HTTP status, also of what came through another door. */
  status = 0;
  code: string | null = null;
  message: string | null = null;

  constructor(
    readonly sink: RecordSink,
    /** The path or method that was called. */
    readonly surface: string,
    /** Ordered by time: it says when the request came. */
    readonly id: string,
  ) {
    this.startedMs = timeOfId(id);
  }

  /** The request goes to this backend. */
  sent({ model, name, reason }: { model: string; name: string; reason: string }): void {
    const nowMs = this.sink.clock.now();
    if (this.attempts++ === 0) this.firstSentMs = nowMs;
    this.sentMs = nowMs;
    this.model = model;
    this.backend = name;
    this.reason = reason;
  }

  /** The latest attempt failed. */
  broke(cause: unknown): void {
    const { model, backend, sentMs } = this;
    this.failures ??= [];
    if (model === null || backend === null || this.failures.length >= this.attempts) return;
    const message = cause instanceof Error ? cause.message : "the answer broke off";
    this.failures.push({ model, backend, sentMs, endedMs: this.sink.clock.now(), message });
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
  end(
    status: number,
    code: string | null = null,
    message: string | null = null,
    nowMs: number = this.sink.clock.now(),
  ): void {
    if (this.endedMs !== 0) return;
    this.endedMs = nowMs;
    this.status = status;
    this.code = code;
    this.message = message;
    this.sink.ended(this);
  }

  refused({ kind, message }: ServiceError, status: number = ERRORS[kind].status): void {
    this.end(status, ERRORS[kind].code, message);
  }

  /** The client disconnected before it had the whole answer. */
  left(): void {
    this.end(CLIENT_CLOSED_STATUS, CLIENT_CLOSED_CODE, "the client disconnected");
  }
}
