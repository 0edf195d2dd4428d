import type { PostedCapability } from "../../../backends/contract.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { ServiceError } from "../../../kernel/errors.ts";
import { CLIENT_LEFT, type Outcome, outcomeOf } from "../../../kernel/request-record.ts";
import { SPAN } from "../../../observe/genai-attributes.ts";
import type { Counter, Histogram, Metrics } from "../../../observe/metrics.ts";
import { parseTraceparent, type Span, type Tracer } from "../../../observe/tracing.ts";
import type { Asker } from "./upstream-call.ts";
import type { ReportedUsage } from "./usage-tail.ts";

/** Finest where people notice a difference; quantiles are computed from these buckets. */
const FIRST_CHUNK_BUCKETS_SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5,
  7.5, 10, 15, 30, 60, 300,
];

export type Operation = "chat" | "text_completion" | "embeddings" | PostedCapability;

interface CallFacts {
  operation: Operation;
  model: string;
  backend: string;
  asker: Pick<Asker, "requestId" | "channel" | "traceparent" | "record">;
}

export class ObservedCall {
  readonly #startedMs: number;
  #firstChunkMs: number | null = null;
  #cause: unknown = null;
  #ended = false;

  constructor(
    readonly observer: CallObserver,
    readonly facts: CallFacts,
    readonly span: Span,
  ) {
    this.#startedMs = observer.clock.now();
  }

  firstChunk(): void {
    this.#firstChunkMs ??= this.observer.clock.now();
    const { record } = this.facts.asker;
    if (record) record.firstTokenMs = this.#firstChunkMs;
  }

  /** One attempt failed; `end` tells whether the whole call did. */
  broke(cause: unknown): void {
    this.#cause = cause;
    this.facts.asker.record?.broke(cause);
  }

  /** `failure` is a one-word reason if the answer is incomplete. Only the first call counts. */
  end(ended: {
    failure: string | null;
    usage: (ReportedUsage & { isEstimated: boolean }) | null;
    costNanoUsd: number | null;
    attempts: number;
  }): void {
    const { failure, usage, costNanoUsd, attempts } = ended;
    if (this.#ended) return;
    this.#ended = true;
    const { observer } = this;
    const { operation, model, asker } = this.facts;
    const nowMs = observer.clock.now();
    observer.seconds.observe((nowMs - this.#startedMs) / 1_000, { operation, model });
    const waitedMs = this.#firstChunkMs === null ? null : this.#firstChunkMs - this.#startedMs;
    if (waitedMs !== null) observer.firstChunk.observe(waitedMs / 1_000, { model });
    if (usage) {
      observer.tokens.add(usage.promptTokens, { model, direction: "input" });
      observer.tokens.add(usage.completionTokens, { model, direction: "output" });
    }
    observer.requests.add(1, { operation, model, outcome: failure ?? "ok" });
    if (usage) asker.record?.used(usage, costNanoUsd);
    const outcome = this.outcome(failure);
    // Whoever replies records a failure that can still set the reply's status, unless the call is charged.
    const isFinal = usage !== null || failure === CLIENT_LEFT.code || this.#firstChunkMs !== null;
    if (outcome === null) asker.record?.end(200, nowMs);
    else if (isFinal) asker.record?.failed(outcome);
    this.span.end({
      [SPAN.inputTokens]: usage?.promptTokens,
      [SPAN.outputTokens]: usage?.completionTokens,
      [SPAN.responseTimeToFirstChunk]: waitedMs === null ? undefined : waitedMs / 1_000,
      [SPAN.attempts]: attempts,
      [SPAN.errorType]: failure ?? undefined,
    });
  }

  /** The outcome for this reason; null: success. */
  outcome(failure: string | null): Outcome | null {
    if (failure === null) return null;
    if (failure === CLIENT_LEFT.code) return CLIENT_LEFT;
    const cause = this.#cause;
    const message = cause instanceof Error ? cause.message : "the answer broke off";
    const begun = this.#firstChunkMs === null ? "" : "after the answer had begun: ";
    return outcomeOf(new ServiceError("bad_gateway", begun + message));
  }
}

/** Counts, times and traces calls to upstreams, and counts requests refused before one. */
export class CallObserver {
  readonly requests: Counter;
  readonly #refusals: Counter;
  readonly seconds: Histogram;
  readonly firstChunk: Histogram;
  readonly tokens: Counter;

  constructor(
    metrics: Metrics,
    readonly tracer: Tracer,
    readonly clock: Clock,
  ) {
    this.#refusals = metrics.counter(
      "gateway_inference_refusals_total",
      "Requests that were refused before an upstream was called, by HTTP status",
    );
    this.requests = metrics.counter(
      "gateway_inference_requests_total",
      "Calls to upstreams by operation, model and outcome",
    );
    this.seconds = metrics.histogram(
      "gateway_inference_seconds",
      "Time from admission to the end of the answer",
    );
    this.firstChunk = metrics.histogram(
      "gateway_time_to_first_token_seconds",
      "Time to the first token of a streamed answer",
      FIRST_CHUNK_BUCKETS_SECONDS,
    );
    this.tokens = metrics.counter("gateway_tokens_total", "Metered tokens by model and direction");
  }

  refused(status: number): void {
    this.#refusals.add(1, { status: String(status) });
  }

  begin(facts: CallFacts): ObservedCall {
    return new ObservedCall(this, facts, this.#span(facts));
  }

  #span({ operation, model, backend, asker }: CallFacts): Span {
    const { tracer } = this;
    if (!tracer.enabled) return tracer.span("");
    return tracer.span(`${operation} ${model}`, {
      kind: "client",
      parent: parseTraceparent(asker.traceparent),
      attributes: {
        [SPAN.operation]: operation,
        [SPAN.requestModel]: model,
        [SPAN.provider]: backend,
        [SPAN.requestId]: asker.requestId,
        [SPAN.channel]: asker.channel,
      },
    });
  }
}
