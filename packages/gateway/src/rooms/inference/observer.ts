import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { GATEWAY, GEN_AI, OTEL } from "../../kernel/genai-attributes.ts";
import type { Counter, Histogram, Metrics } from "../../kernel/metrics.ts";
import { parseTraceparent, type Span, type Tracer } from "../../kernel/tracing.ts";
import type { ReportedUsage } from "./usage-tail.ts";

/** Models that have handles of their own; more than any gateway lists. */
const MODELS_MAX = 2_000;

export interface CallFacts {
  operation: "chat" | "embeddings";
  model: string;
  backend: string;
  requestId: string;
  channel: string;
  /** W3C header of the client's own trace. */
  traceparent: string | null;
}

/** Handles of one operation and model, so that counting a request builds no label text. */
interface Handles {
  ok: { add(amount?: number): void };
  seconds: { observe(seconds: number): void };
  firstChunk: { observe(seconds: number): void };
  input: { add(amount?: number): void };
  output: { add(amount?: number): void };
}

/** One call as metrics and traces see it. */
export class ObservedCall {
  readonly #startedMs: number;
  #firstChunkMs: number | null = null;
  #ended = false;

  constructor(
    readonly observer: CallObserver,
    readonly facts: CallFacts,
    readonly handles: Handles,
    readonly span: Span,
  ) {
    this.#startedMs = observer.clock.now();
  }

  /** The first piece of a streamed answer is there. */
  firstChunk(): void {
    this.#firstChunkMs ??= this.observer.clock.now();
  }

  /** `failure` says why, in one word, when the answer did not come whole; later calls do nothing. */
  end({
    failure,
    usage,
    attempts,
  }: {
    failure: string | null;
    usage: ReportedUsage | null;
    attempts: number;
  }): void {
    if (this.#ended) return;
    this.#ended = true;
    const { handles, facts, observer } = this;
    const { operation, model } = facts;
    handles.seconds.observe((observer.clock.now() - this.#startedMs) / 1_000);
    const waitedMs = this.#firstChunkMs === null ? null : this.#firstChunkMs - this.#startedMs;
    if (waitedMs !== null) handles.firstChunk.observe(waitedMs / 1_000);
    if (usage) {
      handles.input.add(usage.promptTokens);
      handles.output.add(usage.completionTokens);
    }
    if (failure === null) handles.ok.add();
    else observer.requests.add(1, { operation, model, outcome: failure });
    this.span.end({
      [GEN_AI.inputTokens]: usage?.promptTokens,
      [GEN_AI.outputTokens]: usage?.completionTokens,
      [GEN_AI.responseTimeToFirstChunk]: waitedMs === null ? undefined : waitedMs / 1_000,
      [GATEWAY.attempts]: attempts,
      [OTEL.errorType]: failure ?? undefined,
    });
  }
}

/** Counts, times and traces the calls to upstreams. */
export class CallObserver {
  readonly requests: Counter;
  readonly #seconds: Histogram;
  readonly #firstChunk: Histogram;
  readonly #tokens: Counter;
  readonly #handles = new BoundedMap<string, Handles>(MODELS_MAX);

  constructor(
    metrics: Metrics,
    readonly tracer: Tracer,
    readonly clock: Clock,
  ) {
    this.requests = metrics.counter(
      "gateway_inference_requests_total",
      "Calls to upstreams by operation, model and outcome",
    );
    this.#seconds = metrics.histogram(
      "gateway_inference_seconds",
      "Time from admission to the end of the answer",
    );
    this.#firstChunk = metrics.histogram(
      "gateway_time_to_first_chunk_seconds",
      "Time to the first piece of a streamed answer",
    );
    this.#tokens = metrics.counter("gateway_tokens_total", "Metered tokens by model and direction");
  }

  begin(facts: CallFacts): ObservedCall {
    return new ObservedCall(this, facts, this.#handlesOf(facts), this.#span(facts));
  }

  #handlesOf({ operation, model }: CallFacts): Handles {
    const key = `${operation} ${model}`;
    let handles = this.#handles.get(key);
    if (!handles) {
      handles = {
        ok: this.requests.labelled({ operation, model, outcome: "ok" }),
        seconds: this.#seconds.labelled({ operation, model }),
        firstChunk: this.#firstChunk.labelled({ model }),
        input: this.#tokens.labelled({ model, direction: "input" }),
        output: this.#tokens.labelled({ model, direction: "output" }),
      };
      this.#handles.set(key, handles);
    }
    return handles;
  }

  #span({ operation, model, backend, requestId, channel, traceparent }: CallFacts): Span {
    const { tracer } = this;
    if (!tracer.enabled) return tracer.span("");
    return tracer.span(`${operation} ${model}`, {
      kind: "client",
      parent: parseTraceparent(traceparent),
      attributes: {
        [GEN_AI.operation]: operation,
        [GEN_AI.requestModel]: model,
        [GEN_AI.provider]: backend,
        [GATEWAY.requestId]: requestId,
        [GATEWAY.channel]: channel,
      },
    });
  }
}
