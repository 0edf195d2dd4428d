import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { freshDatabase, kinds, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { emailOf, signInAll } from "./support.ts";

const redisUrl = process.env.TEST_REDIS_URL;
const MODEL = "clip";
const WAIT_MS = 20_000;

async function until(holds: () => unknown): Promise<void> {
  for (const deadline = Date.now() + WAIT_MS; !(await holds()); await Bun.sleep(10))
    if (Date.now() > deadline) throw new Error("the condition did not come true in time");
}

const setups = [
  ...kinds.map((kind) => ({ name: `one instance on ${kind}`, kind, instances: 1 })),
  ...(redisUrl && process.env.TEST_POSTGRES_URL
    ? [{ name: "two instances over Redis", kind: "postgres" as const, instances: 2 }]
    : []),
];

describe.each(setups)("points that requests hold, $name", ({ kind, instances }) => {
  let database: TestDatabase;
  let upstream: VideoUpstream;
  /** Where requests are made, and where points are moved. */
  let here: TestGateway;
  let there: TestGateway;
  let people: Record<"root" | "ann" | "ben", string>;
  const running: TestGateway[] = [];

  beforeAll(async () => {
    database = await freshDatabase(kind);
    upstream = startMinimax();
    const config = {
      databaseUrl: database.options.databaseUrl,
      redisUrl: instances > 1 ? redisUrl! : null,
      jwtSecret: "one secret for all instances of this test",
    };
    for (let i = 0; i < instances; i++)
      running.push(await bootGateway(i === 0 ? { config, dataDir: database.options.dataDir } : { config }));
    here = running[0]!;
    there = running.at(-1)!;
    people = await signInAll(here, ["root", "ann", "ben"]);
    const admin = { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" };
    await fetch(`${here.url}/api/admin/backends`, {
      method: "POST",
      headers: admin,
      body: JSON.stringify({ type: "minimax", name: "hailuo", url: upstream.url, models: [MODEL] }),
    });
    const price = { model: MODEL, mode: "per_call", base_price: 0.3 };
    await here.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
    for (const gateway of running) await until(() => gateway.app.rooms.routing.modelCount > 0);
  });
  afterEach(() => {
    upstream.script = [minimax.success];
  });
  afterAll(async () => {
    const { problems } = await verifyLedger(here.app.rooms.ledger.options.db);
    for (const gateway of running) await gateway.stop();
    upstream.stop();
    await database.drop();
    expect(problems).toEqual([]);
  });

  /** A group of ann's whose pool has a hundred points, and a key of ben's that draws on it. */
  async function pool(): Promise<{ group_id: string; key: string }> {
    const { id: group_id } = await here.rpc("group.create", { name: "crew" }, people.ann);
    await here.rpc("group.members.add", { group_id, email: emailOf("ben") }, people.ann);
    await here.rpc("group.credits.topup", { group_id, points: 100 }, people.root);
    const { key } = await here.rpc("keys.create", { name: "k", group_id }, people.ben);
    return { group_id, key };
  }
  /** Makes a job of 30 points that stays under way. */
  async function hold(key: string): Promise<string> {
    upstream.script = [minimax.status("Processing")];
    const response = await fetch(`${here.url}/v1/video/generations`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: MODEL, prompt: "p" }),
    });
    expect(response.status).toBe(200);
    return (await response.json()).id;
  }
  /** The vendor says that it makes no clip, whether it is asked because of the cancellation or before. */
  async function release(job_id: string): Promise<void> {
    upstream.script = [minimax.status("Fail")];
    await here.call("video.cancel", { job_id }, people.ben);
  }
  const allocate = (group_id: string, points: number) =>
    there.call("group.credits.allocate", { group_id, user_id: emailOf("ben"), points }, people.ann);
  const balanceOf = async (group_id: string) =>
    (await there.rpc("group.credits.balance", { group_id }, people.ann)).balance;

  test("cannot be allocated: refused whole, with words; the rest can", async () => {
    const { group_id, key } = await pool();
    const job_id = await hold(key);
    const refused = await allocate(group_id, 71);
    expect(refused.error).toMatchObject({
      code: -32000,
      message: expect.stringMatching(/has 100 points.*hold too many of them to allocate 71/),
    });
    expect(await balanceOf(group_id)).toBe(100);
    expect((await allocate(group_id, 101)).error.message).toContain("fewer than 101");
    expect((await allocate(group_id, 70)).result).toMatchObject({ balance: 30 });
    expect((await allocate(group_id, 1)).error.message).toContain("hold");
    await release(job_id);
    await until(async () => !(await allocate(group_id, 30)).error);
    expect(await balanceOf(group_id)).toBe(0);
  }, 30_000);

  test("are spent once, however many allocations come at once", async () => {
    const { group_id, key } = await pool();
    const jobs = [await hold(key), await hold(key)];
    const answers = await Promise.all(Array.from({ length: 20 }, () => allocate(group_id, 30)));
    expect(answers.filter(({ error }) => !error)).toHaveLength(1);
    upstream.script = [minimax.success];
    for (const job_id of jobs)
      await until(async () => (await here.rpc("video.get", { job_id }, people.ben)).status === "done");
    // What was held is what they took: nothing was left to the quota.
    await until(async () => (await balanceOf(group_id)) === 10);
  }, 30_000);

  test("do not keep allocations of one moment from each other", async () => {
    const { group_id } = await pool();
    const answers = await Promise.all(Array.from({ length: 20 }, () => allocate(group_id, 5)));
    expect(answers.filter(({ error }) => error)).toEqual([]);
    expect(await balanceOf(group_id)).toBe(0);
    expect((await allocate(group_id, 1)).error.message).toContain("fewer than 1");
  }, 30_000);

  test("are not admitted on while they are being moved", async () => {
    const { group_id, key } = await pool();
    const attempts = Array.from({ length: 6 }, (_, i) => (i % 2 ? allocate(group_id, 60) : hold(key)));
    await Promise.all(attempts);
    upstream.script = [minimax.success];
    const jobs = async () => (await here.rpc("video.list", {}, people.ben)).jobs as { status: string }[];
    await until(async () =>
      (await jobs()).every(({ status }) => status === "done" || status === "cancelled"),
    );
    expect(await balanceOf(group_id)).toBeGreaterThanOrEqual(0);
  }, 30_000);

  test("keep the group from being deleted, and go back when it is", async () => {
    const { group_id, key } = await pool();
    const job_id = await hold(key);
    const refused = await there.call("group.delete", { group_id }, people.ann);
    expect(refused.error).toMatchObject({
      code: -32000,
      message: expect.stringContaining("Requests in progress"),
    });
    expect(await balanceOf(group_id)).toBe(100);
    // Someone else learns nothing of it.
    expect((await there.call("group.delete", { group_id }, people.ben)).error.code).toBe(-32007);
    await release(job_id);
    await until(async () => !(await there.call("group.delete", { group_id }, people.ann)).error);
    const { entries } = await there.rpc("ledger.self", {}, ADMIN_TOKEN);
    expect(entries[0]).toMatchObject({
      kind: "return",
      points: 100,
      counterparty: { type: "group", id: group_id },
    });
  }, 30_000);
});
