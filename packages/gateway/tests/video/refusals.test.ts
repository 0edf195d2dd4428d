import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { deploymentOfRun, everywhere } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";

const folder = mkdtempSync(join(tmpdir(), "pricing-"));
const pricingFile = join(folder, "prices.json");
const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]).toString("base64");
const image = { data_base64: PNG, mime_type: "image/png" };

let gateway: TestGateway;
let upstream: VideoUpstream;
let token: string;
const clock = new ManualClock();
beforeAll(async () => {
  writeFileSync(pricingFile, '{"prices": []}');
  gateway = await bootGateway({ config: { pricingFile }, overrides: { clock } });
  upstream = startMinimax();
  token = await gateway.signIn("ada");
  await gateway.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const backend = {
    type: "minimax",
    name: "hailuo",
    url: upstream.url,
    api_key: "k",
    models: ["clips", "yen"],
  };
  await admin("POST", "/api/admin/backends", backend);
  await until("the models are served", async () =>
    ((await admin("GET", "/api/admin/backends")) as { models: string[] }).models.includes("clips"),
  );
});
afterAll(async () => {
  await gateway.stop();
  upstream.stop();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  upstream.onSubmit = null;
  upstream.script = [minimax.success];
});

async function admin(method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.json();
}
const create = (params: Record<string, unknown>) =>
  gateway.call("video.create", { model: "clips", prompt: "a fox", ...params }, token);
// biome-ignore lint/suspicious/noExplicitAny: tests look into jobs freely
const view = (job_id: string): Promise<any> => gateway.rpc("video.get", { job_id }, token);

/** Lets the service's time pass until the job is over. */
const STEP_MS = 500;
async function ended(jobId: string, stepMs = STEP_MS) {
  await until("the end of the job", async () => {
    clock.advance(stepMs);
    return !["queued", "running"].includes((await view(jobId)).status);
  });
  return view(jobId);
}
const circuit = async () => {
  const { backends } = (await admin("GET", "/api/admin/backends")) as {
    backends: { health: { name: string; circuit: { state: string; cause: string | null } }[] };
  };
  return backends.health.find(({ name }) => name === "hailuo")!.circuit;
};

test("what the backend has no place for is named in the job's view", async () => {
  const images = [image, image, image];
  const { result } = await create({ negative_prompt: "rain", images });
  const job = await ended(result.job_id);
  expect(job.status).toBe("done");
  expect(job.warnings.join("\n")).toContain("`negative_prompt` was not sent");
  expect(job.warnings.join("\n")).toContain("`images.2` was not sent");
  expect(job.warnings).toHaveLength(2);
  const plain = await ended((await create({ images: [image] })).result.job_id);
  expect(plain.warnings).toBeUndefined();
});

test("a price in another currency: jobs are refused until the pricing file has a rate", async () => {
  const price = { model: "yen", mode: "per_call", base_price: 200, currency: "jpy" };
  await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  const { pricing } = await gateway.rpc("billing.video.pricing.get", {}, token);
  expect(pricing).toMatchObject([{ model: "yen", currency: "jpy", base_price: 200 }]);
  const { error } = await create({ model: "yen" });
  expect(error.message).toContain("in JPY, and the pricing file has no rate for it");
  writeFileSync(pricingFile, '{"prices": [], "usd_per": {"JPY": 0.005}}');
  clock.advance(2_000);
  const { result } = await create({ model: "yen" });
  expect((await ended(result.job_id)).cost).toBe(1);
  await gateway.rpc("billing.video.pricing.set", { ...price, enabled: false }, ADMIN_TOKEN);
  const fallback = (await create({ model: "yen", duration_seconds: 10 })).result;
  expect((await ended(fallback.job_id)).cost).toBe(0.05);
});

test("a refused submission is sent again five times, ever later, and opens the circuit; then the job fails with the upstream's words", async () => {
  expect((await circuit()).state).toBe("closed");
  const sentAtMs: number[] = [];
  upstream.onSubmit = () => {
    sentAtMs.push(clock.now());
    return new Response('{"message":"the cluster is full"}', { status: 503 });
  };
  const { result } = await create({});
  const job = await ended(result.job_id);
  expect(job.status).toBe("failed");
  expect(job.error).toMatch(/full|503/);
  // Or for three minutes, which pass faster here than several processes hand the job over.
  expect(sentAtMs.length).toBeWithin(deploymentOfRun ? 4 : 6, 7);
  const pauses = sentAtMs.slice(1).map((atMs, i) => atMs - sentAtMs[i]!);
  // The last pauses are as long as pauses get; the clock moves on while a refusal is on its way.
  for (const [i, pause] of pauses.slice(1).entries())
    expect(pause + STEP_MS).toBeGreaterThanOrEqual(pauses[i]!);
  expect(sentAtMs.at(-1)! - sentAtMs[0]!).toBeLessThan(deploymentOfRun ? 300_000 : 200_000);
  const { state, cause } = await circuit();
  expect(state).not.toBe("closed");
  expect(cause).toBeString();
  expect(job.cost).toBe(0);
});

test("an open circuit keeps queued jobs away; half-open, one of them tests it", async () => {
  // What an earlier test opened may be tested by now.
  clock.advance(60_000);
  await ended((await create({})).result.job_id);
  expect((await circuit()).state).toBe("closed");
  let sent = 0;
  upstream.onSubmit = () => {
    sent++;
    return new Response('{"message":"broken"}', { status: 500 });
  };
  const created = await Promise.all([create({}), create({}), create({})]);
  const ids = created.map(({ result }) => result.job_id);
  // A job that is missed is found a second later; after two seconds the first would be sent again.
  await until("all were sent", () => {
    clock.advance(5);
    return sent === 3;
  });
  const isOpen = async () => (await circuit()).state === "open";
  await until("the circuit is open", () => everywhere(isOpen));
  expect((await create({})).error.code).toBe(-32000);
  for (let passedMs = 0; passedMs < 25_000; passedMs += STEP_MS) {
    clock.advance(STEP_MS);
    await Bun.sleep(5);
  }
  expect(sent).toBe(3);
  await until("it was tested", async () => {
    clock.advance(STEP_MS);
    return sent > 3;
  });
  for (let passedMs = 0; passedMs < 20_000; passedMs += STEP_MS) {
    clock.advance(STEP_MS);
    await Bun.sleep(5);
  }
  expect(sent).toBe(4);
  for (const job_id of ids) await gateway.rpc("video.cancel", { job_id }, token);
}, 60_000);
