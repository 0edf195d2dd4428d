import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { FILM, minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { videosApi } from "@model-gateway/testing/videos-api.ts";
import { clipReply } from "../../src/rooms/video/clip-reply.ts";

const PIXEL = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]).toString("base64");
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

/** A server of one's own beside the gateway. */
function startVideos() {
  const api = videosApi();
  const server = Bun.serve({ port: 0, fetch: (request) => api.fetch(request) });
  return Object.assign(api, { url: server.url.origin, stop: () => server.stop(true) });
}

describe("clips made on own GPUs", () => {
  const prompt = "data:text/plain;base64,QUFB";
  let gpus: ReturnType<typeof startVideos>;
  let id: string;
  let slowId: string;
  let brokenId: string;
  let job: { result: { url: string }; cost: number };
  beforeAll(async () => {
    gpus = startVideos();
    await admin("POST", "/api/admin/backends", {
      ...{ type: "videos", name: "gpus", url: gpus.url, models: ["wan"] },
    });
    await until("the model is served", async () =>
      ((await admin("GET", "/api/admin/backends")) as { models: string[] }).models.includes("wan"),
    );
    const images = [{ data_base64: PIXEL, mime_type: "image/png" }];
    const size = { width: 832, height: 480, duration_seconds: 4 };
    id = await create({ prompt, images, ...size, extra: { num_frames: 81 } });
    [slowId, brokenId] = [await create({ prompt: "slow" }), await create({ prompt: "broken" })];
    job = await ended(id, "done");
  }, 30_000);
  afterAll(() => gpus.stop());

  const create = async (task: Record<string, unknown>): Promise<string> =>
    (await gateway.rpc("video.create", { model: "wan", ...task }, token)).job_id;
  const jobOf = (jobId: string) => gateway.rpc("video.get", { job_id: jobId }, token);
  const ended = async (jobId: string, status: string) => {
    await until(`the job is ${status}`, async () => (await jobOf(jobId)).status === status);
    return jobOf(jobId);
  };
  const rowsOf = async () =>
    (await gateway.rpc("usage.list", { limit: 100 }, token)).records.filter(
      ({ model }: { model: string }) => model === "wan",
    );
  const clip = (path: string, bearer: string, headers: Record<string, string> = {}) =>
    fetch(gateway.url + path, { headers: { authorization: `Bearer ${bearer}`, ...headers } });

  test("are charged once and served to their owner, and to nobody else", async () => {
    const { result, cost } = job;
    const { input_reference, ...fields } = gpus.asked.find((task) => task.prompt === prompt)!;
    expect(fields).toEqual({ model: "wan", prompt, seconds: "4", size: "832x480", num_frames: "81" });
    expect((input_reference as File).type).toBe("image/png");
    expect(result.url).toBe(`/v1/video/generations/${id}/content`);
    await until("the clip is charged", async () => (await rowsOf()).length > 0);
    expect((await rowsOf()).map((row: { cost: number }) => row.cost)).toEqual([cost]);
    const other = await gateway.signIn("eve");
    const { key: othersKey } = await gateway.rpc("keys.create", { name: "k" }, other);
    const own = `/api/video/${id}/content`;
    for (const answer of [await clip(result.url, key), await clip(own, token)]) {
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "video/mp4"]);
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(Buffer.from(await answer.arrayBuffer())).toEqual(FILM);
    }
    const limits = { name: "lent", total_budget_usd: 1 };
    const { key: lentKey } = await gateway.rpc("keys.create", limits, token);
    for (const path of [result.url, `/v1/video/generations/${id}`])
      expect((await clip(path, lentKey)).status).toBe(404);
    for (const answer of [await clip(result.url, othersKey), await clip(own, other)])
      expect([answer.status, (await answer.json()).error.code]).toEqual([404, "no_job"]);
    for (const answer of [await clip(result.url, token), await clip(own, key)])
      expect(answer.status).toBe(401);
    expect(await rowsOf()).toHaveLength(1);
  }, 30_000);

  test("ranges pass, types that are no clip's do not, and a reader's pace is the server's", async () => {
    const { result } = job;
    const ranges: (string | null)[] = [];
    gpus.clip = ({ headers }) => {
      ranges.push(headers.get("range"));
      const at = { "content-type": "text/html", "content-range": `bytes 4-7/${FILM.length}` };
      return new Response(FILM.subarray(4, 8), { status: 206, headers: at });
    };
    const part = await clip(result.url, key, { range: "bytes=4-7" });
    expect([part.status, part.headers.get("content-range")]).toEqual([206, `bytes 4-7/${FILM.length}`]);
    expect(part.headers.get("content-type")).toBe("application/octet-stream");
    expect(await part.text()).toBe("ftyp");
    gpus.clip = ({ headers }) => {
      ranges.push(headers.get("range"));
      return new Response(null, { status: 416, headers: { "content-range": `bytes */${FILM.length}` } });
    };
    const beyond = await clip(result.url, key, { range: "bytes=900-" });
    expect([beyond.status, beyond.headers.get("content-range")]).toEqual([416, `bytes */${FILM.length}`]);
    await clip(result.url, key, { range: "bytes=0-1,3-4" });
    expect(ranges).toEqual(["bytes=4-7", "bytes=900-", null]);

    const piece = new Uint8Array(1024 * 1024);
    let pieces = 0;
    let isLeft = false;
    const endless = () =>
      new ReadableStream<Uint8Array>({
        pull(out) {
          pieces++;
          out.enqueue(piece);
        },
        cancel() {
          isLeft = true;
        },
      });
    gpus.clip = () => new Response(endless());
    const reader = (await clip(result.url, key)).body!.getReader();
    await reader.read();
    let before = -1;
    await until("the server waits", async () => {
      const isStill = pieces === before;
      before = pieces;
      await Bun.sleep(100);
      return isStill;
    });
    expect(pieces).toBeLessThan(64);
    await reader.cancel();
    await until("the server is left", () => isLeft);
  }, 30_000);

  test("a cancelled job is taken from the server and owed once; a failed one costs nothing", async () => {
    await until("it is under way", async () => (await jobOf(slowId)).progress === 40);
    const failed = await ended(brokenId, "failed");
    expect([failed.error, failed.cost]).toEqual(["out of memory", 0]);
    const before = (await rowsOf()).length;
    expect((await clip(`/api/video/${slowId}/content`, token)).status).toBe(404);
    await gateway.rpc("video.cancel", { job_id: slowId }, token);
    // The server forgets it either way, so nobody knows that it made nothing.
    await until("it is charged", async () => (await rowsOf()).length > before);
    expect((await jobOf(slowId)).status).toBe("cancelled");
    expect(gpus.deleted).toHaveLength(1);
    expect(await rowsOf()).toHaveLength(before + 1);
  }, 30_000);

  test("one that its server no longer has is not found; a server that is away is said to be", async () => {
    const { result } = job;
    gpus.clip = () => Response.redirect("http://127.0.0.1:1/elsewhere");
    expect((await clip(result.url, key)).status).toBe(404);
    gpus.clip = () => new Response("", { status: 502 });
    const broken = await clip(result.url, key);
    await gpus.stop();
    for (const answer of [broken, await clip(result.url, key)])
      expect([answer.status, (await answer.json()).error.code]).toEqual([503, "unavailable"]);
  }, 30_000);
});

test("a clip that is too large is cut off", async () => {
  const request = { header: () => null, signal: new AbortController().signal };
  const sent: number[] = [];
  const { source } = await clipReply(
    { request, requestId: "r" },
    async () => new Response(new Blob(["x".repeat(11)])),
    10,
  );
  const end = await new Promise((resolve) =>
    source.begin({
      write: (bytes) => sent.push(bytes.length) > 0,
      end: () => resolve("end"),
      terminate: () => resolve("cut off"),
    }),
  );
  expect([end, sent]).toEqual(["cut off", []]);
});

test("the type of a clip is one of the known ones, in any case and as a whole", async () => {
  const request = { header: () => null, signal: new AbortController().signal };
  const typeOf = async (type: string) => {
    const clip = new Response("x", { headers: { "content-type": type } });
    const { head } = await clipReply({ request, requestId: "r" }, async () => clip);
    return head.contentType;
  };
  expect(await typeOf('Video/MP4; codecs="avc1"')).toBe("video/mp4");
  for (const other of ["video/mp4+xml", "text/html"])
    expect(await typeOf(other)).toBe("application/octet-stream");
});
