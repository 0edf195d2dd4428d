import type { Clock } from "./clock.ts";
import type { Principal } from "./context.ts";
import { ERRORS, type ServiceError } from "./errors.ts";
import { timeOfId } from "./ids.ts";
import { redactText } from "./log.ts";
import type { RequestLine } from "./request-row.ts";
import { hideSecrets } from "./secrets.ts";

const MESSAGE_LENGTH_MAX = 500;
const NAME_LENGTH_MAX = 128;

export interface RecordSink {
  readonly clock: Clock;
  /** Copies the fields at once, and never throws. */
  ended(record: RequestRecord, nowMs: number): void;
}

export interface Outcome {
  status: number;
  code: string;
  message: string;
}

export interface FailedAttempt {
  backend: string;
  model: string;
  sentMs: number;
  endedMs: number;
  message: string;
}

/** Prompt and answer, kept only for keys that the operator chose. */
export interface Capture {
  asked: Record<string, unknown> | null;
  answered: (() => unknown) | null;
}

/** The status that proxies log for a client that disconnected before its answer. */
export const CLIENT_CLOSED_STATUS = 499;
export const CLIENT_LEFT: Outcome = {
  status: CLIENT_CLOSED_STATUS,
  code: "client_left",
  message: "the client disconnected",
};

export const outcomeOf = ({ kind, message }: ServiceError, status = ERRORS[kind].status): Outcome => ({
  status,
  code: ERRORS[kind].code,
  message,
});

interface Sent {
  readonly model: string;
  readonly name: string;
  readonly reason: string;
}

type UsedField = "promptTokens" | "completionTokens" | "isEstimated";

const NOTHING = {
  userId: null as string | null,
  /** For refused requests only: looking the address up costs more than the rest of the record. */
  clientIp: null as string | null,
  refId: null as string | null,
  sentMs: null as number | null,
  failures: null as readonly FailedAttempt[] | null,
  capture: null as Capture | null,
  code: null as string | null,
  message: null as string | null,
};
type RequestDetails = typeof NOTHING;

/** One request while it is served; each part of the service adds its facts. The caller of `open` ends it unless it is detached. */
export class RequestRecord {
  readonly startedMs: number;
  /** Work continues after the call that opened the record, and will end it. */
  detached = false;
  principal: Principal | null = null;
  modelAsked: string | null = null;
  /** The backend of the latest attempt, and why it was chosen. */
  route: Sent | null = null;
  attempts = 0;
  firstSentMs = 0;
  /** When the first chunk of a streamed answer came; 0: none has. */
  firstTokenMs = 0;
  promptTokens = 0;
  completionTokens = 0;
  costNanoUsd: number | null = null;
  isEstimated = false;
  /** HTTP status, also on other transports; 0: the request has not ended. */
  status = 0;
  line: RequestLine | null = null;
  details: Readonly<RequestDetails> = NOTHING;

  constructor(
    readonly sink: RecordSink,
    readonly surface: string,
    readonly id: string,
  ) {
    this.startedMs = timeOfId(id);
  }

  addDetails(notes: Partial<RequestDetails>): void {
    this.details = { ...this.details, ...notes };
  }

  sent(route: Sent): void {
    const nowMs = this.sink.clock.now();
    if (this.attempts++ === 0) this.firstSentMs = nowMs;
    else this.addDetails({ sentMs: nowMs });
    this.route = route;
  }

  /** The backend was full: the request waits again, as if this attempt had not been made. */
  waitsAgain(): void {
    if (--this.attempts === 0) this.firstSentMs = 0;
  }

  broke(cause: unknown): void {
    const { route, firstSentMs, attempts } = this;
    const { sentMs } = this.details;
    const before = this.details.failures ?? [];
    if (route === null || before.length >= attempts) return;
    const failure = {
      model: route.model,
      backend: route.name,
      sentMs: sentMs ?? firstSentMs,
      endedMs: this.sink.clock.now(),
      message: cause instanceof Error ? cause.message : "the answer broke off",
    };
    this.addDetails({ failures: [...before, failure] });
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

  end(status: number, nowMs: number = this.sink.clock.now()): void {
    if (this.status !== 0) return;
    this.status = status;
    this.sink.ended(this, nowMs);
  }

  failed({ status, code, message }: Outcome): void {
    if (this.status === 0) this.addDetails({ code, message });
    this.end(status);
  }

  refused(error: ServiceError, status?: number): void {
    this.failed(outcomeOf(error, status));
  }

  left(): void {
    this.failed(CLIENT_LEFT);
  }

  /** The facts of a request that ends now; `outcome` is its failure, unless that is in `details`. */
  facts(nowMs: number, model: string | null, outcome: Outcome | null) {
    const { startedMs, firstSentMs, firstTokenMs, route, modelAsked } = this;
    const { clientIp, failures } = this.details;
    const { code, message } = outcome ?? this.details;
    return {
      surface: this.surface,
      backend: route === null ? null : named(route.name),
      reason: route === null ? null : route.reason,
      // Status 0: the request was answered, and is charged before it ends.
      status: outcome === null ? this.status || 200 : outcome.status,
      code,
      message: message === null ? null : words(message),
      // An unknown model name may be any text of the client, even a key.
      modelAsked:
        modelAsked === null || modelAsked === model
          ? null
          : named(model === null ? words(modelAsked) : modelAsked),
      attempts: this.attempts,
      failedAttempts: failures && failedAttempts(failures, startedMs),
      queueMs: firstSentMs === 0 ? 0 : Math.max(0, firstSentMs - startedMs),
      firstTokenMs: firstTokenMs === 0 ? null : Math.max(0, firstTokenMs - startedMs),
      durationMs: Math.max(0, nowMs - startedMs),
      clientIp,
    };
  }
}

/** Postgres rejects NUL in texts. */
const withoutNul = (text: string): string => (text.includes("\u0000") ? text.replaceAll("\u0000", "") : text);
const named = (text: string): string => withoutNul(text).slice(0, NAME_LENGTH_MAX);
const words = (text: string): string =>
  withoutNul(redactText(hideSecrets(text))).slice(0, MESSAGE_LENGTH_MAX);

const failedAttempts = (failures: readonly FailedAttempt[], startedMs: number): string =>
  JSON.stringify(
    failures.map(({ backend, model, sentMs, endedMs, message }) => ({
      backend: named(backend),
      model: named(model),
      from_ms: sentMs - startedMs,
      to_ms: endedMs - startedMs,
      message: words(message),
    })),
  );
