export type AttributeValue = string | number | boolean | readonly string[];
export type SpanKind = "internal" | "server" | "client";

export interface FinishedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string | null;
  name: string;
  kind: SpanKind;
  startMs: number;
  endMs: number;
  attributes: Readonly<Record<string, AttributeValue | undefined>>;
  failed: boolean;
}

const KINDS: Record<SpanKind, number> = { internal: 1, server: 2, client: 3 };
const STATUS_ERROR = 2;
/** Attributes are not for prompts or stack traces. */
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

const encodeAttributes = (attributes: FinishedSpan["attributes"]): object[] =>
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

export function encodeSpans(
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
