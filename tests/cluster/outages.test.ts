import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { canShare } from "../../packages/gateway/tests/instances/support.ts";
import { ADMIN_TOKEN, type Instance } from "./support/cluster.ts";
import { type Load, startLoad } from "./support/load.ts";
import { openPool, openStage, pointsOf, type Stage, settleAccounts } from "./support/stage.ts";

const POSTGRES_AWAY_MS = 10_000;
const REDIS_AWAY_MS = 5_000;
const LANES = 4;
/** The outages last for seconds, whose requests are all alike. */
const PAUSE_MS = 25;
/** Each request costs 1.3 of them. */
const SMALL_POOL_POINTS = 200;
const POINTS_A_REQUEST = 1.3;
const TURNS_MAX = 40;

interface AccountedLoad extends Load {
  /** Ids of the requests that were answered with 200. */
  answered: string[];
  /** Resolves after so many more requests. */
  goOn(requests: number): Promise<void>;
}

/** Chats with the key on every instance in turn. */
function chatOn({ instances }: Stage, key: string): AccountedLoad {
  const answered: string[] = [];
  const ask = async (n: number) => {
    const response = await instances[n % instances.length]!.chat(key);
    if (response.ok) answered.push(response.headers.get("x-request-id")!);
    return response;
  };
  const load = startLoad(LANES, ask, PAUSE_MS);
  const goOn = async (requests: number) => {
    const target = load.sent + requests;
    await until("the load goes on", () => load.sent > target);
  };
  return Object.assign(load, { answered, goOn });
}

function expectOnlyAnswers({ statuses, failures }: Load): void {
  expect({ statuses: [...statuses.keys()], failures }).toEqual({ statuses: [200], failures: [] });
}

/** Whether the instances hear each other: what one revokes the other refuses. */
async function expectShared([a, b]: readonly Instance[], admin: string): Promise<void> {
  const { id, key } = await a!.rpc("keys.create", { name: "after" }, admin);
  expect((await b!.chat(key)).status).toBe(200);
  await a!.rpc("keys.revoke", { key_id: id }, admin);
  await until("the key is refused", async () => (await b!.chat(key)).status === 401);
}

/** A pool whose owner has nothing else, and a load that spends it. */
async function startSpending(stage: Stage, owner: string) {
  const pool = await openPool(stage.instances[0]!, { admin: stage.admin, owner, points: SMALL_POOL_POINTS });
  const load = chatOn(stage, pool.groupKey);
  const untilRefused = async (meanwhile: () => Promise<void>) => {
    for (let turn = 0; (load.statuses.get(402) ?? 0) <= LANES; turn++) {
      if (turn === TURNS_MAX) throw new Error(`the pool still pays after ${load.answered.length} requests`);
      await meanwhile();
      await load.goOn(20);
    }
    await load.stop();
    expect([...load.statuses.keys()].sort()).toEqual([200, 402]);
  };
  /** The pool has paid what it had and no more; returns how many points its requests cost. */
  const expectExact = async () => {
    const { left, paid } = await pointsOf(stage, pool.groupId);
    expect(left).toBeGreaterThanOrEqual(0);
    expect(left + paid).toBe(SMALL_POOL_POINTS);
    return load.answered.length * POINTS_A_REQUEST;
  };
  return { load, untilRefused, expectExact };
}

// Two services that share nothing, so that the outage of one passes while the other one's is looked at.
describe.if(canShare)("instances under load", () => {
  let losesPostgres: Stage;
  let losesRedis: Stage;
  beforeAll(async () => {
    [losesPostgres, losesRedis] = await Promise.all([
      openStage({ instances: 2 }),
      openStage({ instances: 2 }),
    ]);
  }, 60_000);
  afterAll(async () => {
    await Promise.all([losesPostgres?.end(), losesRedis?.end()]);
  });

  test.concurrent("Postgres away for 10 s: known keys are served, and everything is settled once", async () => {
    const { instances, groupKey, groupId, admin } = losesPostgres;
    const a = instances[0]!;
    const { key: unknownKey } = await a.rpc("keys.create", { name: "never used" }, admin);
    const before = await pointsOf(losesPostgres, groupId);
    const load = chatOn(losesPostgres, groupKey);
    await load.goOn(60);
    const startAgain = await losesPostgres.stopPostgres();
    const outageEndsMs = Date.now() + POSTGRES_AWAY_MS;
    const refused = await a.chat(unknownKey);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    await until("the outage has lasted", () => Date.now() > outageEndsMs);
    await load.goOn(60);
    await startAgain();
    await load.goOn(60);
    await load.stop();
    expectOnlyAnswers(load);
    await settleAccounts(losesPostgres, load.answered);
    const { left, paid } = await pointsOf(losesPostgres, groupId);
    expect(left + paid).toBe(before.left + before.paid);
    expect(Math.abs(paid - load.answered.length * POINTS_A_REQUEST)).toBeLessThanOrEqual(1);
    await until("a key that was not known is served", async () => (await a.chat(unknownKey)).ok);
  });

  test.concurrent("Redis away for 5 s, and emptied again and again: nothing fails, no point is spent twice", async () => {
    const { instances, groupKey, redis, admin } = losesRedis;
    const name = `bob-${crypto.randomUUID()}`;
    const owner = await instances[0]!.signUp(name);
    const plan = { user_email: `${name}@example.com`, tier: "pro" };
    await instances[0]!.rpc("billing.plan.set", plan, ADMIN_TOKEN);
    const load = chatOn(losesRedis, groupKey);
    const alone = await startSpending(losesRedis, owner);
    await load.goOn(20);
    await redis.kill();
    const outageEndsMs = Date.now() + REDIS_AWAY_MS;
    await alone.untilRefused(async () => {});
    await until("the outage has lasted", () => Date.now() > outageEndsMs);
    await redis.start();
    await load.goOn(60);
    // Until then each may still promise what is left on its own.
    for (const order of [instances, instances.toReversed()]) await expectShared(order, admin);
    const client = new Bun.RedisClient(redis.url);
    const emptied = await startSpending(losesRedis, owner);
    await emptied.untilRefused(async () => void (await client.send("FLUSHALL", [])));
    client.close();
    await load.stop();
    expectOnlyAnswers(load);
    await settleAccounts(
      losesRedis,
      [load, alone.load, emptied.load].flatMap(({ answered }) => answered),
    );
    // Alone, each may promise what is left once; emptied, Redis is told what each has promised before it promises more.
    expect(await alone.expectExact()).toBeLessThanOrEqual(SMALL_POOL_POINTS * instances.length);
    expect(await emptied.expectExact()).toBeLessThanOrEqual(SMALL_POOL_POINTS * 1.1);
    await expectShared(instances, admin);
  });
});
