import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { LastHour } from "../../src/rooms/system/last-hour.ts";
import { RecentFailures } from "../../src/rooms/system/service.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const MINUTE_MS = 60_000;

describe("the last hour", () => {
  const clock = new ManualClock();
  const metrics = new Metrics();
  const requests = metrics.counter("gateway_inference_requests_total", "");
  const refusals = metrics.counter("gateway_inference_refusals_total", "");
  const seconds = metrics.histogram("gateway_time_to_first_chunk_seconds", "", [0.1, 0.2, 0.4, 1]);
  requests.add(1000, { model: "m", outcome: "ok" });
  const hour = new LastHour(clock, metrics);

  test("begins empty, whatever was counted before", () => {
    const { minutes, first_token } = hour.report();
    expect(minutes).toMatchObject([{ ok: 0, client_error: 0 }]);
    expect(first_token).toEqual({ count: 0, p50_ms: null, p95_ms: null, models: [] });
  });

  test("sorts outcomes into the minute that they fell in", () => {
    requests.add(3, { model: "m", outcome: "ok" });
    requests.add(1, { model: "m", outcome: "client_left" });
    clock.advance(MINUTE_MS);
    requests.add(2, { model: "n", outcome: "upstream" });
    refusals.add(4, { status: "401" });
    refusals.add(5, { status: "500" });
    const { minutes } = hour.report();
    expect(minutes).toMatchObject([
      { ok: 3, client_left: 1, upstream_error: 0 },
      { ok: 0, upstream_error: 2, client_error: 4, gateway_error: 5 },
    ]);
    expect(Date.parse(minutes[1]!.at) - Date.parse(minutes[0]!.at)).toBe(MINUTE_MS);
  });

  test("tells quantiles of first tokens by model, and forgets them after an hour", () => {
    for (let i = 0; i < 90; i++) seconds.observe(0.15, { model: "m" });
    for (let i = 0; i < 10; i++) seconds.observe(0.7, { model: "slow" });
    clock.advance(MINUTE_MS);
    const { first_token } = hour.report();
    expect(first_token).toMatchObject({ count: 100, p50_ms: 155.6, p95_ms: 700 });
    expect(first_token.models.map(({ model, count }) => [model, count])).toEqual([
      ["m", 90],
      ["slow", 10],
    ]);
    clock.advance(60 * MINUTE_MS);
    const later = hour.report();
    expect(later.minutes.length).toBe(60);
    expect(later.first_token.count).toBe(0);
    expect(later.minutes.every(({ ok }) => ok === 0)).toBe(true);
    hour.close();
  });
});

test("the same failure again is counted; others are kept, the newest fifty", () => {
  const failures = new RecentFailures();
  const failure = {
    requestId: "r",
    status: null,
    code: "connect",
    model: "m",
    backend: "b",
    message: "refused",
  };
  for (let i = 0; i < 60; i++) failures.add({ ...failure, model: `m${i}` }, i);
  for (let i = 0; i < 1000; i++) failures.add({ ...failure, requestId: `r${i}` }, 100 + i);
  const [first, second, ...rest] = failures.list();
  expect(first).toMatchObject({ times: 1000, requestId: "r999", atMs: 1099 });
  expect(second).toMatchObject({ model: "m59", times: 1 });
  expect(rest.length).toBe(48);
});

describe("system.activity", () => {
  let bench: InferenceBench;
  beforeAll(async () => {
    bench = await bootInference();
  });
  afterAll(() => bench.stop());

  test("is for administrators", async () => {
    const member = await bench.signIn("member");
    expect((await bench.call("system.activity", {}, member)).error.code).toBe(-32007);
    expect((await bench.call("system.activity", {})).error.code).toBe(-32005);
  });

  test("tells how requests ended, how fast answers began, and what went wrong", async () => {
    await (await bench.chat({})).text();
    await (await bench.chat({ stream: true })).text();
    await bench.chat({ model: "absent" });
    await bench.post("/v1/chat/completions", {}, { headers: { authorization: "Bearer service-nobody" } });
    bench.upstream.answer((_, reply) => reply.json({ error: "out of memory" }, 500));
    const failed = await bench.chat({});
    expect(failed.status).toBe(502);
    const activity = await bench.rpc("system.activity", {}, bench.token);
    const sum = (name: string) =>
      activity.minutes.reduce((total: number, minute: Record<string, number>) => total + minute[name]!, 0);
    expect({ ok: sum("ok"), client: sum("client_error"), upstream: sum("upstream_error") }).toEqual({
      ok: 2,
      client: 2,
      upstream: 1,
    });
    expect(activity.first_token).toMatchObject({ count: 1, models: [{ model: "m", count: 1 }] });
    expect(activity.first_token.p50_ms).toBeGreaterThan(0);
    expect(activity.failures).toMatchObject([
      {
        request_id: failed.headers.get("x-request-id"),
        status: null,
        code: "upstream",
        model: "m",
        backend: "first",
        message: "upstream 500: out of memory",
        times: 1,
      },
      { status: 401, code: "unauthorized" },
      { status: 404, code: "model_not_found" },
    ]);
    const text = JSON.stringify(activity);
    expect(text).not.toContain(bench.key);
    expect(text).not.toContain("hi there");
  });

  inOneProcess("keeps each backend's probes with how long they took and why they failed", async () => {
    await bench.admin("POST", "/backends", { name: "gone", type: "external", url: "http://127.0.0.1:1" });
    const backends = async () => (await bench.rpc("system.activity", {}, bench.token)).backends;
    await until("the newcomer is probed", async () => (await backends())[0].probes.length > 0);
    const [gone, first] = await backends();
    expect(gone).toMatchObject({ name: "gone", state: "Unhealthy", probes: [{ state: "Unhealthy" }] });
    expect(gone.probes[0].detail.length).toBeGreaterThan(5);
    expect(first).toMatchObject({ name: "first", state: "Healthy", circuit: "closed" });
    expect(first.probes[0].latency_ms).toBeGreaterThanOrEqual(0);
  });
});
