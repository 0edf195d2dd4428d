import { afterAll, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";

let gateway: TestGateway;
let upstream: VideoUpstream;
let token: string;
let key: string;
beforeAll(async () => {
  gateway = await bootGateway();
  upstream = startMinimax();
  token = await gateway.signIn("ada");
  ({ key } = await gateway.rpc("keys.create", { name: "k", project: "film" }, token));
  await admin("POST", "/api/admin/backends", {
    type: "minimax",
    name: "hailuo",
    url: upstream.url,
    api_key: "sk-up",
    models: ["hailuo-2"],
  });
  await until("the model is served", async () =>
    ((await admin("GET", "/api/admin/backends")) as { models: string[] }).models.includes("hailuo-2"),
  );
});
afterAll(async () => {
  await gateway.stop();
  upstream.stop();
});

async function admin(method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.json();
}
const post = (body: unknown, bearer = key) =>
  fetch(`${gateway.url}/v1/video/generations`, {
    method: "POST",
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
const get = (id: string, bearer = key) =>
  fetch(`${gateway.url}/v1/video/generations/${id}`, { headers: { authorization: `Bearer ${bearer}` } });
test("REST: submit, follow on the job's own channel, poll, and one priced row", async () => {
  upstream.script = [minimax.status("Processing"), minimax.success];
  const submitted = await post({ model: "hailuo-2", prompt: "a fox", duration_seconds: 6 });
  expect(submitted.status).toBe(200);
  const { id, ...rest } = (await submitted.json()) as { id: string };
  expect(rest).toEqual({
    object: "video.generation",
    model: "hailuo-2",
    status: "queued",
    created_at: expect.any(Number),
  } as never);
  const events = await fetch(`${gateway.url}/api/rpc/events?session=${id}`);
  let text = "";
  for await (const chunk of events.body as unknown as AsyncIterable<Uint8Array>) {
    text += new TextDecoder().decode(chunk);
    if (text.includes("video.done")) break;
  }
  const job = await (await get(id)).json();
  expect(job).toMatchObject({
    id,
    status: "done",
    progress: 100,
    cost: 0.03,
    error: null,
    result: { url: "https://cdn.example/v.mp4" },
  });
  const { records } = await gateway.rpc("usage.list", { project: "film" }, token);
  expect(records).toHaveLength(1);
  expect(records[0]).toMatchObject({ model: "hailuo-2", backend: "video", total_tokens: 0, cost: 0.03 });
}, 30_000);

test("RPC: create, get, list, cancel, with the owner's own jobs only", async () => {
  upstream.script = [minimax.status("Processing")];
  const { job_id, stream_id } = await gateway.rpc("video.create", { model: "hailuo-2", prompt: "p" }, token);
  expect(stream_id).toMatch(/^[0-9a-f-]{36}$/);
  const other = await gateway.signIn("grace");
  const { key: otherKey } = await gateway.rpc("keys.create", { name: "k" }, other);
  expect((await gateway.rpc("video.get", { job_id }, token)).job_id).toBe(job_id);
  expect((await gateway.call("video.get", { job_id }, other)).error.code).toBe(-32000);
  expect((await gateway.call("video.cancel", { job_id }, other)).error.code).toBe(-32000);
  const hidden = await get(job_id, otherKey);
  expect([hidden.status, (await hidden.json()).error]).toEqual([
    404,
    { message: expect.any(String), type: "not_found", code: "no_job" },
  ]);
  expect((await gateway.rpc("video.list", { limit: 5000 }, token)).jobs[0].id).toBe(job_id);
  expect((await gateway.rpc("video.list", { limit: 2 ** 63 }, token)).jobs[0].id).toBe(job_id);
  expect((await gateway.rpc("video.list", { limit: 0 }, token)).jobs).toHaveLength(1);
  expect((await gateway.rpc("video.list", {}, other)).jobs).toEqual([]);
  expect(await gateway.rpc("video.cancel", { job_id }, token)).toEqual({ ok: true });
  expect((await gateway.rpc("video.get", { job_id }, token)).status).toBe("cancelled");
});

test("refusals: no key, no backend, bad fields, bad id", async () => {
  const unauthorized = await post({ model: "hailuo-2", prompt: "p" }, "nonsense");
  expect([unauthorized.status, unauthorized.headers.get("content-type")]).toEqual([
    401,
    "text/plain; charset=utf-8",
  ]);
  const none = await post({ model: "unknown-model", prompt: "p" });
  expect([none.status, (await none.json()).error]).toEqual([
    503,
    { message: expect.any(String), type: "video_backend_error", code: "no_backend" },
  ]);
  const bad = await post({ model: "hailuo-2", duration_seconds: "six" });
  const { error } = await bad.json();
  expect([bad.status, error.code]).toEqual([400, "missing_fields"]);
  expect(error.message).toContain("`prompt`");
  expect(error.message).toContain("`duration_seconds`");
  const id = await get("not-a-uuid");
  expect([id.status, (await id.json()).error.code]).toEqual([400, "bad_id"]);
  expect((await get(crypto.randomUUID())).status).toBe(404);
});

test("the price follows the configured row and its resolution coefficient", async () => {
  const price = {
    model: "hailuo-2",
    base_price: 0.1,
    price_per_second: 0.02,
    resolution_coeff: { "768": 2, "*": 1 },
  };
  expect(await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN)).toEqual({ ok: true });
  upstream.script = [minimax.success];
  const { job_id } = await gateway.rpc(
    "video.create",
    { model: "hailuo-2", prompt: "p", duration_seconds: 10 },
    token,
  );
  await until(
    "the job is done",
    async () => (await gateway.rpc("video.get", { job_id }, token)).status === "done",
  );
  expect((await gateway.rpc("video.get", { job_id }, token)).cost).toBe(0.5);
}, 30_000);

test("an exhausted quota refuses new jobs", async () => {
  const poor = await gateway.signIn("poor");
  // More than half of the quota, so that it has no room for a second one.
  const price = { model: "hailuo-2", mode: "per_call", base_price: 0.6 };
  await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  upstream.script = [minimax.success];
  const { job_id } = await gateway.rpc("video.create", { model: "hailuo-2", prompt: "p" }, poor);
  await until(
    "the job is done",
    async () => (await gateway.rpc("video.get", { job_id }, poor)).status === "done",
  );
  await until(
    "the quota is spent",
    async () => (await gateway.rpc("billing.plan", {}, poor)).usage.quota_cost_usd === 0.6,
  );
  expect((await gateway.call("video.create", { model: "hailuo-2", prompt: "p" }, poor)).error.code).toBe(
    -32006,
  );
}, 30_000);
