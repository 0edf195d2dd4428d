/** Videos that a node's engine makes: a real node program, its engine in a process of its own, and the tunnel between. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import {
  endNodes,
  enginesOf,
  prepareWorkplace,
  type RunningNode,
  untilNoEngines,
  type Workplace,
} from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { askEngine, follow, type RegisteredNode, registerNode } from "./support.ts";

const ENGINE = join(import.meta.dir, "../../../testing/src/video-engine.ts");
const PRICE = 0.1;
const CLIP_BYTES = 1_500_000;

let gateway: TestGateway;
let admin: string;
let key: string;
let workplace: Workplace;
let node: RegisteredNode;
let running: RunningNode;

beforeAll(async () => {
  gateway = await bootGateway({ config: { apiRateLimitRpm: 10_000 } });
  admin = await gateway.signIn("ada");
  ({ key } = await gateway.rpc("keys.create", { name: "test" }, admin));
  for (const model of ["wan", "tiny"])
    await gateway.rpc(
      "billing.video.pricing.set",
      { model, mode: "per_call", base_price: PRICE },
      ADMIN_TOKEN,
    );
});
afterAll(() => gateway.stop());
beforeEach(async () => {
  const engine = [process.execPath, ENGINE, "--alias", "{model_id}", "--host", "{bind}", "--port", "{port}"];
  workplace = prepareWorkplace({
    // Nobody listens there, so all of it goes through the tunnel.
    top: 'host = "127.0.0.2"',
    models: `
[engines.videos]
command = ${JSON.stringify(engine)}
env = { ENGINE_KEY = "{api_key}" }
weights = "none"
[models.wan]
engine = "videos"
[models.tiny]
path = "${ENGINE}"
`,
  });
  node = await registerNode(gateway, { admin, name: "gpu", workplace });
  running = await node.start();
});
afterEach(async () => {
  await endNodes();
  await gateway.rpc("agents.deregister", { agent_id: node.agentId }, admin);
  await untilNoEngines(workplace);
  workplace.remove();
});

async function deploy(model_id: string): Promise<void> {
  const { stream_id } = await gateway.rpc("agents.deploy", { model_id, agent_id: node.agentId }, admin);
  const progress = await follow(gateway, stream_id);
  await until(`${model_id} is ready`, () => progress.last()?.status === "ready");
  progress.stop();
  await until(`${model_id} is routable`, () => isListed(model_id, "chat"));
}
/** Wherever one asks: there may be several processes. */
async function isListed(model: string, ability: string): Promise<boolean> {
  const lists = await Promise.all(Array.from({ length: 8 }, () => capabilitiesOf(model)));
  return lists.every((abilities) => abilities.includes(ability));
}
const capabilitiesOf = async (model: string): Promise<string[]> => {
  const models: { id: string; capabilities: string[] }[] = await gateway.rpc("models.list", {}, admin);
  return models.find(({ id }) => id === model)?.capabilities ?? [];
};
const create = async (prompt: string, model = "wan"): Promise<string> =>
  (await gateway.rpc("video.create", { model, prompt, duration_seconds: 4 }, admin)).job_id;
const jobOf = (job_id: string) => gateway.rpc("video.get", { job_id }, admin);
const untilIs = async (id: string, status: string) => {
  await until(`the job is ${status}`, async () => (await jobOf(id)).status === status, 40_000);
  return jobOf(id);
};
const rowsOf = async (): Promise<{ id: string; cost: number }[]> =>
  (await gateway.rpc("usage.list", { limit: 100 }, admin)).records;
const clip = (id: string, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}/v1/video/generations/${id}/content`, {
    headers: { authorization: `Bearer ${key}`, ...headers },
  });
const seen = async () =>
  (await (await askEngine(workplace, "wan", "/seen")).json()) as Record<
    "asked" | "deleted" | "polls",
    number
  >;

test("a clip is made on a node, reaches its owner through the tunnel, and is paid for once", async () => {
  await deploy("wan");
  const before = (await rowsOf()).length;
  const submitted = await fetch(`${gateway.url}/v1/video/generations`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "wan", prompt: "a fox", width: 832, height: 480, duration_seconds: 4 }),
  });
  expect(submitted.status).toBe(200);
  const { id } = (await submitted.json()) as { id: string };
  const { result, cost } = await untilIs(id, "done");
  expect([result.url, cost]).toEqual([`/v1/video/generations/${id}/content`, PRICE]);

  const whole = await clip(id);
  const bytes = Buffer.from(await whole.arrayBuffer());
  expect([whole.status, whole.headers.get("content-type"), bytes.length]).toEqual([
    200,
    "video/mp4",
    CLIP_BYTES,
  ]);
  const direct = await askEngine(workplace, "wan", `/v1/videos/${await taskIdOf()}/content`);
  const hash = (film: Uint8Array) => createHash("sha256").update(film).digest("hex");
  expect(hash(bytes)).toBe(hash(new Uint8Array(await direct.arrayBuffer())));
  const part = await clip(id, { range: "bytes=1000000-1000009" });
  expect([part.status, part.headers.get("content-range")]).toEqual([
    206,
    `bytes 1000000-1000009/${CLIP_BYTES}`,
  ]);
  expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(1_000_000, 1_000_010));
  const own = await fetch(`${gateway.url}/api/video/${id}/content`, {
    headers: { authorization: `Bearer ${admin}` },
  });
  expect([own.status, (await own.arrayBuffer()).byteLength]).toEqual([200, CLIP_BYTES]);
  const eve = await gateway.signIn("eve");
  const others = await fetch(`${gateway.url}/api/video/${id}/content`, {
    headers: { authorization: `Bearer ${eve}` },
  });
  expect(others.status).toBe(404);
  await until("it is charged", async () => (await rowsOf()).length > before);

  const slow = await create("slow");
  await until("it is under way", async () => (await jobOf(slow)).progress === 40);
  await gateway.rpc("video.cancel", { job_id: slow }, admin);
  await until("the engine is told", async () => (await seen()).deleted === 1);
  const broken = await untilIs(await create("broken"), "failed");
  expect([broken.error, broken.cost]).toEqual(["out of memory", 0]);
  // The engine forgets what it is told to cancel, so nobody knows that it made nothing.
  await until("the cancelled one is charged", async () => (await rowsOf()).length === before + 2);
  expect((await rowsOf()).slice(0, 2).map((row) => row.cost)).toEqual([PRICE, PRICE]);
  expect(await seen()).toMatchObject({ asked: 3, deleted: 1 });
}, 60_000);

const taskIdOf = async () => {
  const listed = (await (await askEngine(workplace, "wan", "/v1/videos")).json()) as {
    data: { id: string }[];
  };
  return listed.data[0]!.id;
};

test("an engine says by its listing whether it makes videos", async () => {
  await deploy("tiny");
  expect(await capabilitiesOf("tiny")).not.toContain("video");
  const refused = await gateway.call("video.create", { model: "tiny", prompt: "a fox" }, admin);
  expect(refused.error.message).toContain("does not support video generation");
  await deploy("wan");
  await until("it is listed with those that make videos", () => isListed("wan", "video"));
}, 60_000);

test("a job whose node goes waits for it, and fails with its engine: nothing is sent twice, or charged", async () => {
  await deploy("wan");
  const made = await create("a fox");
  await untilIs(made, "done");
  const before = (await rowsOf()).length;
  const job = await create("slow");
  await until("it is under way", async () => (await jobOf(job)).progress === 40);
  const unanswered = await create("stuck");
  await until("the engine has it", async () => (await seen()).asked === 3);
  running.kill("SIGKILL");
  await running.exited;
  await until("the gateway misses it", async () => !(await isOnline()));
  expect((await untilIs(unanswered, "failed")).error).toContain("it is not sent twice");
  expect((await clip(made)).status).toBe(503);
  expect((await jobOf(job)).status).toBe("running");
  running = await node.start();
  const failed = await untilIs(job, "failed");
  expect([failed.error, failed.cost]).toEqual([expect.stringContaining("Video not found"), 0]);
  expect((await clip(made)).status).toBe(404);
  expect((await seen()).asked).toBe(0);
  expect(await rowsOf()).toHaveLength(before);
}, 60_000);

const isOnline = async () =>
  (await gateway.rpc("agents.status", { agent_id: node.agentId }, admin)).online as boolean;

test("a job starts a model on demand, which stays while the job is under way", async () => {
  const serve = (mode: string) =>
    gateway.rpc("agents.serve", { model_id: "wan", mode, idle_minutes: 1 / 60, minimum_minutes: 0 }, admin);
  await serve("on_demand");
  await until("it is listed", () => isListed("wan", "chat"));
  // Nobody knows yet what it does; a job may find out.
  expect(await capabilitiesOf("wan")).not.toContain("video");
  expect(await enginesOf(workplace)).toEqual([]);
  const id = await create("slow");
  // It is tried again after 2, 8 and 32 seconds.
  await until("it is under way", async () => (await jobOf(id)).progress === 40, 60_000);
  // Between two polls it is idle for longer than it may be, but for the job.
  const { polls } = await seen();
  await until("it is polled again", async () => (await seen()).polls >= polls + 2);
  expect([(await jobOf(id)).status, (await seen()).asked]).toEqual(["running", 1]);
  await askEngine(workplace, "wan", "/finish");
  expect((await untilIs(id, "done")).cost).toBe(PRICE);
  expect((await clip(id)).status).toBe(200);
  await until("it is known what it does", () => isListed("wan", "video"));
  await serve("off");
}, 120_000);
