import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

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
    await bench.chat({});
    const failed = await bench.chat({});
    expect(failed.status).toBe(502);
    const activity = await bench.rpc("system.activity", {}, bench.token);
    expect(activity.minutes).toHaveLength(60);
    const sum = (name: string) =>
      activity.minutes.reduce((total: number, minute: Record<string, number>) => total + minute[name]!, 0);
    expect({ ok: sum("ok"), client: sum("client_error"), upstream: sum("upstream_error") }).toEqual({
      ok: 2,
      client: 2,
      upstream: 2,
    });
    expect(activity.first_token).toMatchObject({ count: 1, models: [{ model: "m", count: 1 }] });
    expect(activity.first_token.p50_ms).toBeGreaterThan(0);
    expect(activity.failures).toMatchObject([
      {
        request_id: failed.headers.get("x-request-id"),
        status: 502,
        code: "bad_gateway",
        model: "m",
        backend: "first",
        message: "upstream 500: out of memory",
        times: 2,
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
