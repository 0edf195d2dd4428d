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
    models: ["hailuo-2", "hailuo-plain", "hailuo-frames"],
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

test("the price of frames counts what a clip can have, whatever `extra` claims", async () => {
  const price = { model: "hailuo-2", mode: "per_frame", base_price: 0.1, price_per_frame: 0.001 };
  await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  const rich = await gateway.signIn("rich");
  await gateway.rpc("billing.plan.set", { user_email: "rich@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const { key: richKey } = await gateway.rpc("keys.create", { name: "k" }, rich);
  upstream.script = [minimax.success];
  // A clip of 10 s has 240 frames. 1e999 is JSON, and no number once it was read.
  const costs = { "12": 0.112, "0.1": 0.101, "-1000000": 0.34, "1e999": 0.34, '"many"': 0.34 };
  for (const [frames, cost] of Object.entries(costs)) {
    const extra = `{"frames":${frames}}`;
    const body = `{"model":"hailuo-2","prompt":"p","duration_seconds":10,"extra":${extra}}`;
    const response = await post(body, richKey);
    expect([frames, response.status]).toEqual([frames, 200]);
    const { id } = await response.json();
    const job = () => gateway.rpc("video.get", { job_id: id }, rich);
    await until("the job is done", async () => (await job()).status === "done");
    expect([frames, (await job()).cost]).toEqual([frames, cost]);
  }
}, 30_000);

test("an exhausted quota refuses new jobs", async () => {
  const poor = await gateway.signIn("poor");
  const price = { model: "hailuo-2", mode: "per_call", base_price: 5 };
  await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  upstream.script = [minimax.success];
  const { job_id } = await gateway.rpc("video.create", { model: "hailuo-2", prompt: "p" }, poor);
  await until(
    "the job is done",
    async () => (await gateway.rpc("video.get", { job_id }, poor)).status === "done",
  );
  await until("the quota is spent", async () => (await gateway.rpc("billing.plan", {}, poor)).quota_exceeded);
  expect((await gateway.call("video.create", { model: "hailuo-2", prompt: "p" }, poor)).error.code).toBe(
    -32006,
  );
}, 30_000);

test("what `extra` asks for in the vendor's words is paid for, and absurd figures are bounded", async () => {
  const [plain, frames] = ["hailuo-plain", "hailuo-frames"];
  for (const price of [
    { model: plain, price_per_second: 0.01, resolution_coeff: { "1080": 3, "*": 1 } },
    { model: frames, mode: "per_frame", price_per_frame: 0.000_1 },
  ])
    await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  // This answer names no size.
  upstream.script = [minimax.status("Success", { file_id: "9007199254740993" })];
  const cases: [model: string, extra: Record<string, unknown>, cost: number][] = [
    [plain, { duration: 10, resolution: "1080P" }, 0.3],
    [plain, { duration: "10", size: "1920*1080" }, 0.3],
    [plain, { duration: -1, resolution: {} }, 0.05],
    [frames, { frames: 200 }, 0.02],
    [frames, { frames: -5, fps: 48 }, 0.024],
    [frames, { frames: 1e308 }, 86.4],
  ];
  const who = await gateway.signIn("wily");
  await gateway.rpc("billing.plan.set", { user_email: "wily@example.com", tier: "pro" }, ADMIN_TOKEN);
  const jobIds: string[] = [];
  for (const [model, extra] of cases) {
    const job = await gateway.rpc("video.create", { model, prompt: "p", extra }, who);
    jobIds.push(job.job_id);
  }
  const jobs = async () => (await gateway.rpc("video.list", {}, who)).jobs.toReversed();
  await until("every job is done", async () =>
    (await jobs()).every(({ status }: { status: string }) => status === "done"),
  );
  expect((await jobs()).map(({ id }: { id: string }) => id)).toEqual(jobIds);
  expect((await jobs()).map(({ cost }: { cost: number }) => cost)).toEqual(cases.map(([, , cost]) => cost));
  // The last one crossed the line, which is in force.
  await until("the quota is spent", async () => (await gateway.rpc("billing.plan", {}, who)).quota_exceeded);
  const { error } = await gateway.call("video.create", { model: plain, prompt: "p" }, who);
  expect(error.code).toBe(-32006);
}, 30_000);
