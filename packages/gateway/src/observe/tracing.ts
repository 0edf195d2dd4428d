import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { SPAN } from "./genai-attributes.ts";

type AttributeValue = string | number | boolean | readonly string[];
type SpanKind = "internal" | "server" | "client";

type Attributes = Record<string, AttributeValue | undefined>;

interface FinishedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string | null;
  name: string;
  kind: SpanKind;
  startMs: number;
  endMs: number;
  attributes: Attributes;
  failed: boolean;
}

interface SpanContext {
  traceId: string;
  spanId: string;
  sampled: boolean;
}

interface SpanOptions {
  attributes?: Attributes;
  /** Another span's `context`, or the result of `parseTraceparent`. */
  parent?: SpanContext | null;
  kind?: SpanKind;
}

export interface Span {
  readonly context: SpanContext | null;
  /** Ends the span; later calls do nothing. An `error.type` among the attributes marks it as failed. */
  end(attributes?: Attributes): void;
}

export interface Tracer {
  readonly enabled: boolean;
  span(name: string, options?: SpanOptions): Span;
  close(): Promise<void>;
}

const SILENT_SPAN: Span = { context: null, end() {} };
export const noTracer: Tracer = { enabled: false, span: () => SILENT_SPAN, close: async () => {} };

/** Version ff is invalid. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-|$)/;
const ZEROS = /^0+$/;

export function parseTraceparent(header: string | null): SpanContext | null {
  const [, traceId, spanId, flags] = (header && TRACEPARENT.exec(header)) || [];
  if (!traceId || !spanId || !flags || ZEROS.test(traceId) || ZEROS.test(spanId)) return null;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

/** Spans that may wait for the collector; beyond that the newest are dropped and counted. */
const QUEUE_MAX = 4_096;
const BATCH_MAX = 512;
const EXPORT_EVERY_MS = 5_000;
const EXPORT_TIMEOUT_MS = 10_000;
const ATTEMPTS_MAX = 5;
const CLOSE_TIMEOUT_MS = 2_000;
const RETRYABLE: readonly number[] = [408, 429, 502, 503, 504];

interface TracerOptions {
  /** Base URL of an OTLP/HTTP collector; `/v1/traces` is added. */
  endpoint: string;
  headers: Readonly<Record<string, string>>;
  serviceName: string;
  version: string;
  clock: Clock;
  log: Log;
  onDropped?: (count: number) => void;
}

const randomHex = (byteCount: number): string => crypto.getRandomValues(new Uint8Array(byteCount)).toHex();

/** Records spans and sends them to an OTLP collector in batches, in the background. */
export class OtlpTracer implements Tracer {
  readonly enabled = true;
  readonly #url: string;
  readonly #stopTimer: () => void;
  #queue: FinishedSpan[] = [];
  #exporting: Promise<void> | null = null;
  #failures = 0;

  constructor(readonly options: TracerOptions) {
    this.#url = `${options.endpoint.replace(/\/+$/, "")}/v1/traces`;
    this.#stopTimer = options.clock.every(EXPORT_EVERY_MS, () => this.#export());
  }

  span(name: string, { attributes, parent, kind = "internal" }: SpanOptions = {}): Span {
    // The caller decided not to sample the whole trace.
    if (parent && !parent.sampled) return SILENT_SPAN;
    const context = { traceId: parent?.traceId ?? randomHex(16), spanId: randomHex(8), sampled: true };
    const startMs = this.options.clock.now();
    const startedAt = performance.now();
    let ended = false;
    return {
      context,
      end: (more) => {
        if (ended) return;
        ended = true;
        this.#add({
          ...context,
          parentSpanId: parent?.spanId ?? null,
          name,
          kind,
          startMs,
          endMs: startMs + (performance.now() - startedAt),
          attributes: { ...attributes, ...more },
          failed: more?.[SPAN.errorType] !== undefined,
        });
      },
    };
  }

  async close(): Promise<void> {
    this.#stopTimer();
    const deadline = Bun.sleep(CLOSE_TIMEOUT_MS).then(() => "late" as const);
    while (this.#queue.length > 0 || this.#exporting) {
      this.#export();
      if ((await Promise.race([this.#exporting, deadline])) === "late" || this.#failures > 0) break;
    }
    this.#drop(this.#queue.length);
    this.#queue = [];
  }

  #add(span: FinishedSpan): void {
    if (this.#queue.length >= QUEUE_MAX) {
      this.#drop(1);
      return;
    }
    this.#queue.push(span);
    if (this.#queue.length >= BATCH_MAX && this.#failures === 0) this.#export();
  }

  #drop(count: number): void {
    if (count > 0) this.options.onDropped?.(count);
  }

  #export(): void {
    if (this.#exporting || this.#queue.length === 0) return;
    this.#exporting = this.#send(this.#queue.splice(0, BATCH_MAX)).finally(() => {
      this.#exporting = null;
      if (this.#queue.length >= BATCH_MAX && this.#failures === 0) this.#export();
    });
  }

  async #send(batch: FinishedSpan[]): Promise<void> {
    const { headers, serviceName, version, log } = this.options;
    let problem: string;
    try {
      const response = await fetch(this.#url, {
        method: "POST",
        headers: { ...headers, "content-type": "application/json" },
        body: encodeSpans(batch, { serviceName, version }),
        signal: AbortSignal.timeout(EXPORT_TIMEOUT_MS),
        redirect: "manual",
      });
      // The connection is reused only if the body was read.
      await response.arrayBuffer();
      if (response.ok) {
        this.#failures = 0;
        return;
      }
      problem = `status ${response.status}`;
      if (!RETRYABLE.includes(response.status)) this.#failures = ATTEMPTS_MAX;
    } catch (error) {
      problem = (error as Error).message;
    }
    this.#retryLater(batch);
    log.warn("span export failed", { problem, spans: batch.length });
  }

  /** Puts the batch back to the front, unless it has failed too often or there is no room. */
  #retryLater(batch: FinishedSpan[]): void {
    this.#failures++;
    const room = QUEUE_MAX - this.#queue.length;
    const kept = this.#failures < ATTEMPTS_MAX ? batch.slice(0, room) : [];
    if (this.#failures >= ATTEMPTS_MAX) this.#failures = 0;
    this.#drop(batch.length - kept.length);
    this.#queue.unshift(...kept);
  }
}

const KINDS: Record<SpanKind, number> = { internal: 1, server: 2, client: 3 };
const STATUS_ERROR = 2;
const TEXT_LENGTH_MAX = 1_024;

/** Nanoseconds as text: they do not fit a JSON number. */
const nanoseconds = (ms: number): string => String(BigInt(Math.round(ms * 1000)) * 1000n);

function encodeValue(value: AttributeValue): object {
  if (typeof value === "string") return { stringValue: value.slice(0, TEXT_LENGTH_MAX) };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "number") {
    return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  }
  return { arrayValue: { values: value.map(encodeValue) } };
}

const encodeAttributes = (attributes: Attributes): object[] =>
  Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: encodeValue(value) }],
  );

function encodeSpan({ traceId, spanId, parentSpanId, name, kind, ...span }: FinishedSpan): object {
  return {
    traceId,
    spanId,
    ...(parentSpanId && { parentSpanId }),
    name,
    kind: KINDS[kind],
    startTimeUnixNano: nanoseconds(span.startMs),
    endTimeUnixNano: nanoseconds(span.endMs),
    attributes: encodeAttributes(span.attributes),
    status: span.failed ? { code: STATUS_ERROR } : {},
  };
}

function encodeSpans(
  spans: readonly FinishedSpan[],
  { serviceName, version }: { serviceName: string; version: string },
): string {
  const resource = encodeAttributes({ "service.name": serviceName, "service.version": version });
  const scope = { name: "model-gateway", version };
  return JSON.stringify({
    resourceSpans: [
      { resource: { attributes: resource }, scopeSpans: [{ scope, spans: spans.map(encodeSpan) }] },
    ],
  });
}
