import { afterAll, afterEach, beforeEach, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";

/** A model server that takes only its own key. */
const KEY = "sk-upstream-secret";
let calls = 0;
const upstream = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch(request) {
    if (request.headers.get("authorization") !== `Bearer ${KEY}`)
      return Response.json({ error: { message: "wrong key" } }, { status: 401 });
    if (new URL(request.url).pathname.endsWith("/models"))
      return Response.json({ object: "list", data: [{ id: "cloudy-1", object: "model" }] });
    calls++;
    return Response.json({
      id: "c1",
      object: "chat.completion",
      created: 1,
      model: "cloudy-1",
      choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 1_000_000, completion_tokens: 0, total_tokens: 1_000_000 },
    });
  },
});
const url = `http://127.0.0.1:${upstream.port}`;

let gateway: TestGateway;
let admin: string;
afterAll(() => upstream.stop(true));
beforeEach(async () => {
  // No admin token: the console must not need one.
  gateway = await bootGateway({ config: { adminToken: null, apiRateLimitRpm: 1_000 } });
  admin = await gateway.signIn("ada");
});
afterEach(() => gateway.stop());

const rpc = (method: string, params: object = {}) => gateway.rpc(method, params, admin);
const call = (method: string, params: object = {}) => gateway.call(method, params, admin);
const backend = async () => (await rpc("backends.list")).backends[0];
const isHealthy = async () => (await backend())?.state === "Healthy";
const ask = async (key: string) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "cloudy-1", messages: [{ role: "user", content: "hi" }] }),
  });

test("a backend is tested, added, edited, disabled, enabled and removed with the session alone", async () => {
  const given = { type: "external", url, name: "cloud" };
  expect(await rpc("backends.test", { ...given, api_key: "wrong" })).toMatchObject({ ok: false, models: [] });
  expect(await rpc("backends.test", { ...given, api_key: KEY })).toMatchObject({
    ok: true,
    detail: null,
    models: ["cloudy-1"],
  });
  expect((await rpc("backends.list")).backends).toEqual([]);
  expect(await rpc("backends.add", { ...given, api_key: KEY })).toEqual({ name: "cloud" });
  await until("it is healthy", isHealthy);
  expect(await backend()).toMatchObject({
    enabled: true,
    editable: true,
    has_key: true,
    model_ids: ["cloudy-1"],
  });
  expect(JSON.stringify(await rpc("backends.list"))).not.toContain(KEY);
  expect((await call("backends.add", given)).error.message).toContain("exists already");
  await rpc("billing.tiers.set", {
    name: "free",
    monthly_usd_quota: null,
    monthly_token_quota: null,
    rpm: 100,
  });
  const { key } = await rpc("keys.create", { name: "laptop" });
  expect((await ask(key)).status).toBe(200);

  // What is left out stays, the key too; it does not go to another server.
  await rpc("backends.update", { name: "cloud", models: ["cloudy-2"] });
  await until("it is healthy", isHealthy);
  expect(await backend()).toMatchObject({ has_key: true, listed_models: ["cloudy-2"], url });
  for (const elsewhere of ["http://127.0.0.1:9", url.replace("http:", "https:")]) {
    const moved = await call("backends.update", { name: "cloud", url: elsewhere });
    expect(moved.error.message).toContain("`api_key`");
  }

  await rpc("backends.update", { name: "cloud", enabled: false });
  expect(await backend()).toMatchObject({ enabled: false, has_key: true });
  const before = calls;
  expect((await ask(key)).status).not.toBe(200);
  expect(calls).toBe(before);
  await rpc("backends.probe", { name: "cloud" });
  expect(await backend()).toMatchObject({ state: "Unhealthy", last_error: "disabled by an administrator" });
  await rpc("backends.update", { name: "cloud", enabled: true });
  await until("it is healthy again", isHealthy);
  expect((await ask(key)).status).toBe(200);

  expect(await rpc("backends.remove", { name: "cloud" })).toEqual({ removed: true });
  expect(await rpc("backends.remove", { name: "cloud" })).toEqual({ removed: false });
  expect((await call("backends.probe", { name: "cloud" })).error.message).toContain(
    "No backend is named cloud",
  );
  expect((await call("backends.update", { name: "cloud" })).error.message).toContain("No backend");
});

test("a disabled backend is still disabled after a restart", async () => {
  const { dataDir } = gateway;
  await rpc("backends.add", { type: "external", url, name: "cloud", api_key: KEY });
  await rpc("backends.update", { name: "cloud", enabled: false });
  await gateway.app.stop();
  const again = await bootGateway({ dataDir, config: { adminToken: null } });
  const { backends } = await again.rpc("backends.list", {}, await again.signIn("ada"));
  expect(backends[0]).toMatchObject({ name: "cloud", enabled: false });
  await again.stop();
});

test("prices and tiers are set with the session, and are in force at once", async () => {
  await rpc("backends.add", { type: "external", url, name: "cloud", api_key: KEY });
  await until("it is healthy", isHealthy);
  const priceOf = async () =>
    (await rpc("billing.prices.list")).find(({ model }: { model: string }) => model === "cloudy-1");
  expect(await priceOf()).toMatchObject({ input_usd: null, source: null });
  await rpc("billing.prices.set", { model: "Cloudy-1", input_usd: 0.25, output_usd: 1 });
  expect(await priceOf()).toEqual({
    model: "cloudy-1",
    capabilities: ["chat", "embeddings", "images", "speech", "transcription", "rerank", "moderation"],
    input_usd: 0.25,
    output_usd: 1,
    parts: {},
    unpriced: false,
    not_billed: false,
    source: "own",
  });
  expect((await call("billing.prices.set", { model: "m", input_usd: -1, output_usd: 1 })).error.code).toBe(
    -32602,
  );
  const { key } = await rpc("keys.create", { name: "laptop" });
  await rpc("billing.tiers.set", { name: "free", monthly_usd_quota: 5, monthly_token_quota: null, rpm: 2 });
  expect((await ask(key)).status).toBe(200);
  expect((await rpc("billing.plan")).usage.cost_usd).toBe(0.25);
  expect((await ask(key)).status).toBe(200);
  expect((await ask(key)).status).toBe(429);
  expect((await rpc("billing.plan")).tiers[0]).toMatchObject({ name: "free", monthly_usd_quota: 5, rpm: 2 });
  const gold = { name: "gold", monthly_usd_quota: 5, monthly_token_quota: null, rpm: 2 };
  await rpc("billing.tiers.set", gold);
  expect((await rpc("billing.plan")).tiers.at(-1)).toEqual(gold);
  expect(await rpc("billing.prices.remove", { model: "cloudy-1" })).toEqual({ removed: true });
  expect(await priceOf()).toMatchObject({ input_usd: null, source: null });
  await rpc("backends.add", { type: "cloud-video", url, name: "films", models: ["clip"] });
  await until("the films are there", async () => (await rpc("billing.prices.list")).length > 1);
  const clip = async () =>
    (await rpc("billing.prices.list")).find(({ model }: { model: string }) => model === "clip");
  expect(await clip()).toMatchObject({ capabilities: ["video"], unpriced: true });
  await rpc("billing.prices.video.set", { model: "clip", mode: "per_call", base_price: 2 });
  expect(await clip()).toMatchObject({ unpriced: false });
  expect((await rpc("billing.video.pricing.get")).pricing[0]).toMatchObject({ model: "clip", base_price: 2 });
});
