import { afterEach, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import { readConfig } from "../../src/config.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { SPAN } from "../../src/observe/genai-attributes.ts";
import { noTracer, OtlpTracer, parseTraceparent, type Tracer } from "../../src/observe/tracing.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests look into exports freely
type Any = any;

interface Collector {
  url: string;
  exports: { path: string; headers: Headers; body: Any }[];
  status: number;
  stop(): Promise<void>;
}

/** Stands in for an OpenTelemetry collector. */
function startCollector(): Collector {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const body = await request.json();
      collector.exports.push({ path: new URL(request.url).pathname, headers: request.headers, body });
      return Response.json({ partialSuccess: {} }, { status: collector.status });
    },
  });
  const collector: Collector = {
    url: `http://127.0.0.1:${server.port}`,
    exports: [],
    status: 200,
    stop: () => server.stop(true),
  };
  return collector;
}

const spansOf = (collector: Collector): Any[] =>
  collector.exports.flatMap(({ body }) => body.resourceSpans[0].scopeSpans[0].spans);

const attributesOf = (span: Any): Record<string, unknown> =>
  Object.fromEntries(span.attributes.map(({ key, value }: Any) => [key, value]));

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

function trace(endpoint: string) {
  const clock = new ManualClock();
  let dropped = 0;
  const tracer: Tracer = new OtlpTracer({
    endpoint,
    headers: { "x-team": "blue" },
    serviceName: "gw",
    version: "1.2.3",
    clock,
    log: silentLog,
    onDropped: (count) => {
      dropped += count;
    },
  });
  return { clock, tracer, dropped: () => dropped };
}

function collectorAndTracer() {
  const collector = startCollector();
  cleanups.push(collector.stop);
  return { collector, ...trace(collector.url) };
}

test("a span reaches the collector with its parent, times and GenAI attributes", async () => {
  const { collector, tracer, clock } = collectorAndTracer();
  const caller = parseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  const request = tracer.span("POST /v1/chat/completions", { parent: caller, kind: "server" });
  const call = tracer.span("chat m", {
    parent: request.context,
    kind: "client",
    attributes: {
      [SPAN.operation]: "chat",
      [SPAN.requestModel]: "m",
      "gen_ai.request.stream": true,
      "gen_ai.request.temperature": 0.5,
      "gen_ai.conversation.id": undefined,
    },
  });
  call.end({ [SPAN.inputTokens]: 21, "gen_ai.response.finish_reasons": ["stop"] });
  call.end({ [SPAN.errorType]: "ignored" });
  request.end();
  expect(collector.exports).toHaveLength(0);
  clock.advance(5_000);
  await until("the spans are exported", () => collector.exports.length === 1);

  const { path, headers, body } = collector.exports[0]!;
  expect(path).toBe("/v1/traces");
  expect(headers.get("content-type")).toBe("application/json");
  expect(headers.get("x-team")).toBe("blue");
  expect(body.resourceSpans[0].resource.attributes).toContainEqual({
    key: "service.name",
    value: { stringValue: "gw" },
  });
  const [client, server] = spansOf(collector);
  expect(server).toMatchObject({ kind: 2, traceId: caller!.traceId, parentSpanId: "b7ad6b7169203331" });
  expect(client).toMatchObject({
    name: "chat m",
    kind: 3,
    traceId: caller!.traceId,
    parentSpanId: server.spanId,
  });
  expect(client.status).toEqual({});
  expect(attributesOf(client)).toEqual({
    "gen_ai.operation.name": { stringValue: "chat" },
    "gen_ai.request.model": { stringValue: "m" },
    "gen_ai.request.stream": { boolValue: true },
    "gen_ai.request.temperature": { doubleValue: 0.5 },
    "gen_ai.usage.input_tokens": { intValue: "21" },
    "gen_ai.response.finish_reasons": { arrayValue: { values: [{ stringValue: "stop" }] } },
  });
  expect(client.spanId).toMatch(/^[0-9a-f]{16}$/);
  const startNano = BigInt(client.startTimeUnixNano);
  expect(startNano).toBe(BigInt(Date.parse("2026-11-15T12:00:00Z")) * 1_000_000n);
  expect(BigInt(client.endTimeUnixNano)).toBeGreaterThanOrEqual(startNano);
  await tracer.close();
});

test("an error type marks the span as failed", async () => {
  const { collector, tracer } = collectorAndTracer();
  tracer.span("chat m").end({ [SPAN.errorType]: "bad_gateway" });
  await tracer.close();
  expect(spansOf(collector)[0].status).toEqual({ code: 2 });
  expect(spansOf(collector)[0].parentSpanId).toBeUndefined();
});

test("a caller that does not sample is followed", async () => {
  const { collector, tracer } = collectorAndTracer();
  const parent = parseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
  const span = tracer.span("chat m", { parent });
  expect(span.context).toBeNull();
  span.end();
  await tracer.close();
  expect(collector.exports).toHaveLength(0);
});

test("many spans go in batches, without waiting for the timer", async () => {
  const { collector, tracer } = collectorAndTracer();
  for (let i = 0; i < 1_200; i++) tracer.span(`s${i}`).end();
  await until("every span is exported", () => spansOf(collector).length >= 1_024);
  await tracer.close();
  expect(spansOf(collector).map(({ name }) => name)).toEqual(
    Array.from({ length: 1_200 }, (_, i) => `s${i}`),
  );
  expect(collector.exports.length).toBe(3);
});

test("a collector that is busy gets the same spans again, each once", async () => {
  const { collector, tracer, clock, dropped } = collectorAndTracer();
  collector.status = 503;
  tracer.span("a").end();
  clock.advance(5_000);
  await until("the first export", () => collector.exports.length === 1);
  collector.status = 200;
  await until("the second export", () => {
    clock.advance(5_000);
    return collector.exports.length === 2;
  });
  await tracer.close();
  expect(spansOf(collector)[0].spanId).toBe(spansOf(collector)[1].spanId);
  expect(collector.exports).toHaveLength(2);
  expect(dropped()).toBe(0);
});

test("what a collector refuses for good is dropped and counted", async () => {
  const { collector, tracer, clock, dropped } = collectorAndTracer();
  collector.status = 400;
  tracer.span("a").end();
  clock.advance(5_000);
  await until("the drop is counted", () => dropped() === 1);
  collector.status = 200;
  tracer.span("b").end();
  await tracer.close();
  expect(spansOf(collector).map(({ name }) => name)).toEqual(["a", "b"]);
});

test("without a collector the queue stays bounded, and closing does not hang", async () => {
  const { tracer, dropped } = trace("http://127.0.0.1:1");
  for (let i = 0; i < 10_000; i++) tracer.span("s").end();
  expect(dropped()).toBeGreaterThan(4_000);
  await tracer.close();
  expect(dropped()).toBe(10_000);
});

test("switched off, a span is one shared object that does nothing", () => {
  expect(noTracer.enabled).toBe(false);
  expect(noTracer.span("a")).toBe(noTracer.span("b"));
  expect(noTracer.span("a").context).toBeNull();
});

test("traceparent is read as W3C has it", () => {
  const header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  expect(parseTraceparent(header)).toEqual({
    traceId: "0af7651916cd43dd8448eb211c80319c",
    spanId: "b7ad6b7169203331",
    sampled: true,
  });
  for (const bad of [
    null,
    "",
    "garbage",
    `ff${header.slice(2)}`,
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    `${header}ff`,
  ]) {
    expect(parseTraceparent(bad)).toBeNull();
  }
});

test("the settings have OpenTelemetry's own names", () => {
  const off = readConfig({});
  expect("config" in off && off.config.otlpEndpoint).toBeNull();
  const on = readConfig({
    OTEL_EXPORTER_OTLP_ENDPOINT: "http://localhost:4318",
    OTEL_EXPORTER_OTLP_HEADERS: "Authorization=Basic%20abc, x-team=blue",
    OTEL_SERVICE_NAME: "gw",
  });
  expect(on).toMatchObject({
    config: {
      otlpEndpoint: "http://localhost:4318",
      otlpHeaders: { authorization: "Basic abc", "x-team": "blue" },
      otlpServiceName: "gw",
    },
  });
  const bad = readConfig({
    OTEL_EXPORTER_OTLP_ENDPOINT: "localhost:4318",
    OTEL_EXPORTER_OTLP_HEADERS: "nothing",
  });
  expect("problems" in bad && bad.problems.map((problem) => problem.split(":")[0])).toEqual([
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
  ]);
});
