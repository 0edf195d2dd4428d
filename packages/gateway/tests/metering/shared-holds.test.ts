import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import { redisPrefix } from "../../src/bus/redis/index.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Admission } from "../../src/rooms/metering/index.ts";
import { openStorage } from "../../src/storage/index.ts";
import { type Bench, centRequest, centUsage, openBench, outputRequest, payer, spend } from "./support.ts";

const redisUrl = process.env.TEST_REDIS_URL;
const INSTANCES = 3;
const REQUESTS = 1_000;
const POOL_POINTS = 10;

interface Instances {
  benches: [Bench, Bench, Bench];
  shared: Shared[];
  /** What they have in Redis begins with this. */
  prefix: string;
}

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Three instances on one database and one Redis, without servers around them. */
async function openInstances(): Promise<Instances> {
  const { options, drop } = await freshDatabase("postgres");
  cleanups.push(drop);
  const shared: Shared[] = [];
  const service = crypto.randomUUID();
  const benches: Bench[] = [];
  for (let i = 0; i < INSTANCES; i++) {
    const dataDir = mkdtempSync(join(tmpdir(), "gateway-holds-"));
    const db = await openStorage(options);
    const shape = { redisUrl: redisUrl!, service, clock: systemClock, ids: randomIds, log: silentLog };
    const parts = await openBus(shape);
    const bench = await openBench({ db, dataDir, clock: systemClock, shared: parts });
    shared.push(parts);
    benches.push(bench);
    cleanups.push(async () => {
      await bench.close();
      await parts.close();
      await db.close();
      rmSync(dataDir, { recursive: true, force: true });
    });
  }
  return { benches: benches as Instances["benches"], shared, prefix: redisPrefix(service) };
}

/** Admissions of `count` requests at once, spread over the instances; refusals are null. */
const admitAtOnce = (benches: readonly Bench[], who: Payer, count: number): Promise<(Admission | null)[]> =>
  Promise.all(
    Array.from({ length: count }, async (_, i) => {
      try {
        return await benches[i % benches.length]!.metering.admit(centRequest(who));
      } catch {
        return null;
      }
    }),
  );

/** Whether this many output tokens can be held for. */
async function isFree({ metering }: Bench, who: Payer, tokens: number): Promise<boolean> {
  try {
    (await metering.admit(outputRequest(who, tokens, tokens))).release();
    return true;
  } catch {
    return false;
  }
}

/** A member of a group without quota: only the pool can pay. */
async function memberWithPool({ benches: [first] }: Instances, points: number): Promise<Payer> {
  const groupId = crypto.randomUUID();
  await first.topup({ type: "group", id: groupId }, points);
  const who = payer({ groupId, tier: "free" });
  const month = new Date().toISOString().slice(0, 7);
  for (const project of ["", who.project!]) {
    await first.db.run(
      `INSERT INTO usage_months (user_id, month, project, requests, tokens, cost_nano_usd, quota_tokens,
         quota_cost_nano_usd, key_quota_tokens, key_quota_cost_nano_usd)
       VALUES ($1, $2, $3, 1, 1, 1, 100000000, 100000000000, 100000000, 100000000000)`,
      [who.userId, month, project],
    );
  }
  return who;
}

describe.if(redisUrl !== undefined && process.env.TEST_POSTGRES_URL !== undefined)(
  "holds of three instances",
  () => {
    test("a pool that covers 10 admits exactly 10 of 1,000 requests at once, and pays them", async () => {
      const instances = await openInstances();
      const { benches } = instances;
      const who = await memberWithPool(instances, POOL_POINTS);
      const admitted = (await admitAtOnce(benches, who, REQUESTS)).filter((admission) => admission !== null);
      expect(admitted).toHaveLength(POOL_POINTS);
      for (const admission of admitted) admission.settle(centUsage());
      for (const { metering } of benches) expect(await metering.flush(30_000)).toBe(true);
      // The pool is empty on every instance, also for the one that has not heard of all settlements.
      expect(await admitAtOnce(benches, who, 30)).toEqual(Array(30).fill(null));
      const rows = await benches[0].rows();
      expect(rows.map(({ points }) => points)).toEqual(Array(POOL_POINTS).fill(1));
      expect((await verifyLedger(benches[0].db)).problems).toEqual([]);
    });

    test("a stream of requests on a small pool is admitted exactly as often as it is paid", async () => {
      const instances = await openInstances();
      const { benches } = instances;
      const who = await memberWithPool(instances, 50);
      let admitted = 0;
      for (let round = 0; round < 40; round++) {
        const held = await admitAtOnce(benches, who, 6);
        for (const admission of held) admission?.settle(centUsage());
        admitted += held.filter((admission) => admission !== null).length;
      }
      expect(admitted).toBe(50);
      for (const { metering } of benches) expect(await metering.flush(30_000)).toBe(true);
      expect((await benches[0].rows()).filter(({ points }) => points === 1)).toHaveLength(50);
    });

    test("what is released on one instance can be held on another", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 1);
      const held = await a.metering.admit(centRequest(who));
      expect(await admitAtOnce([b], who, 1)).toEqual([null]);
      held.release();
      await until("it can be held elsewhere", async () => (await admitAtOnce([b], who, 1))[0] !== null);
    });

    test("the quota of a tier lets exactly one request cross its line", async () => {
      const { benches } = await openInstances();
      // The free tier's 100,000 tokens: 100 requests of 1,000 fill them.
      const who = payer({ tier: "free" });
      const admitted = (await admitAtOnce(benches, who, 300)).filter((admission) => admission !== null);
      expect(admitted).toHaveLength(100);
      for (const admission of admitted) admission.settle(centUsage());
      for (const { metering } of benches) expect(await metering.flush(30_000)).toBe(true);
      expect((await admitAtOnce(benches, who, 9)).filter(Boolean)).toHaveLength(0);
    });

    test("new labels on every instance do not multiply the quota", async () => {
      const { benches } = await openInstances();
      const userId = crypto.randomUUID();
      const results = await Promise.allSettled(
        Array.from({ length: 300 }, async (_, i) => {
          const who = payer({ userId, project: `label-${i}`, keyId: crypto.randomUUID() });
          return benches[i % 3]!.metering.admit(centRequest(who));
        }),
      );
      expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(100);
    });

    test("a bound is lowered to what all instances have left, and grows into what they give back", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 10);
      const first = await a.metering.admit(outputRequest(who, 6_000));
      const second = await b.metering.admit(outputRequest(who, 50_000));
      expect([first.outputTokensHeld, second.outputTokensHeld]).toEqual([6_000, 4_000]);
      const total = (completionTokens: number) => ({ promptTokens: 10, completionTokens });
      expect(await second.grow(total(5_000))).toBe(false);
      first.release();
      await until("what was given back can be held", () => second.grow(total(10_000)));
      expect(await admitAtOnce([a], who, 1)).toEqual([null]);
      second.release();
    });

    test("growths of one hold that are asked for at once leave nothing behind", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 10);
      const held = await a.metering.admit(outputRequest(who, 1_000));
      const grown = await Promise.all(
        [3_000, 9_000, 2_000, 20_000, 10_000].map((completionTokens) =>
          held.grow({ promptTokens: 10, completionTokens }),
        ),
      );
      expect(grown).toEqual([true, true, true, false, true]);
      expect(await admitAtOnce([b], who, 1)).toEqual([null]);
      held.release();
      await until("all of it is free again", () => isFree(b, who, 10_000));
    });

    test("a hold that is being grown when its request ends is given back", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 10);
      const held = await a.metering.admit(outputRequest(who, 1_000));
      const growing = held.grow({ promptTokens: 10, completionTokens: 10_000 });
      held.release();
      expect(await growing).toBe(false);
      await until("all of it can be held elsewhere", () => isFree(b, who, 10_000));
    });

    test("an overrun on one instance is a debt on all of them, and a top-up frees them", async () => {
      const instances = await openInstances();
      const { benches } = instances;
      const who = await memberWithPool(instances, 5);
      const [admission] = await admitAtOnce(benches, who, 1);
      admission!.settle(centUsage(40));
      expect(await benches[0].metering.flush(30_000)).toBe(true);
      const refused = async (bench: Bench): Promise<string> => {
        try {
          (await bench.metering.admit(centRequest(who))).release();
          return "admitted";
        } catch (error) {
          return (error as Error).message;
        }
      };
      for (const bench of benches)
        await until("the debt is known", async () => (await refused(bench)).includes("You owe 35 points"));
      await benches[1].topup({ type: "group", id: who.groupId! }, 36);
      for (const bench of benches)
        await until("the payment is known", async () => (await refused(bench)) === "admitted");
      expect((await verifyLedger(benches[0].db)).problems).toEqual([]);
    });

    test("points that were moved away are gone for an instance that has not heard of it", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 10);
      const account = { type: "group", id: who.groupId! } as const;
      const stale = await b.ledger.balances.load(account);
      const hold = await a.metering.holdPoints(account, 8);
      const other = { type: "user", id: who.userId } as const;
      const order = { points: 8, note: null, actor: "test" };
      await a.ledger.transaction((tx) => a.ledger.allocate(tx, { from: account, to: other, order }));
      hold!.release();
      await until("it is known here", () => b.ledger.balances.last(account)!.balance === 2);
      // As if the message had been lost: Redis was told by the one who moved them.
      const before = b.ledger.balances;
      const deaf = { ...stale, confirmedAtMs: Number.POSITIVE_INFINITY };
      Object.assign(before, { peek: () => deaf, last: () => deaf });
      expect(await isFree(b, who, 3_000)).toBe(false);
      expect(await isFree(b, who, 2_000)).toBe(true);
    });

    test("a flushed Redis is told again what is reserved", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 2);
      await a.metering.admit(centRequest(who));
      const client = new Bun.RedisClient(redisUrl!);
      cleanups.push(() => client.close());
      for (const key of await client.send("KEYS", [`${instances.prefix}*`])) await client.del(key);
      // Each instance finds out when it asks next, and says what it has before it is answered.
      const other = payer({ groupId: crypto.randomUUID() });
      await a.topup({ type: "group", id: other.groupId! }, 5);
      await spend(a, other);
      expect(await admitAtOnce([b], who, 2)).toEqual([expect.anything(), null]);
    });

    test("an instance that ends frees what it held", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 1);
      await a.metering.admit(centRequest(who));
      expect(await admitAtOnce([b], who, 1)).toEqual([null]);
      await instances.shared[0]!.close();
      expect(await admitAtOnce([b], who, 1)).toEqual([expect.anything()]);
    });
  },
);
