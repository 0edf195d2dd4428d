import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Admission } from "../../src/rooms/metering/index.ts";
import { openStorage } from "../../src/storage/index.ts";
import { type Bench, centRequest, centUsage, openBench, payer, spend } from "./support.ts";

const redisUrl = process.env.TEST_REDIS_URL;
const INSTANCES = 3;
const REQUESTS = 1_000;
const POOL_POINTS = 10;

interface Instances {
  benches: [Bench, Bench, Bench];
  shared: Shared[];
}

const cleanups: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** Three instances on one database and one Redis, without servers around them. */
async function openInstances(): Promise<Instances> {
  const { options, drop } = await freshDatabase("postgres");
  cleanups.push(drop);
  const shared: Shared[] = [];
  const benches: Bench[] = [];
  for (let i = 0; i < INSTANCES; i++) {
    const dataDir = mkdtempSync(join(tmpdir(), "gateway-holds-"));
    const db = await openStorage(options);
    const parts = await openBus({ redisUrl: redisUrl!, clock: systemClock, ids: randomIds, log: silentLog });
    const bench = await openBench({ db, dataDir, clock: systemClock, shared: parts });
    shared.push(parts);
    benches.push(bench);
    cleanups.push(async () => {
      await bench.close();
      await parts.reservations.close();
      await parts.bus.close();
      await db.close();
      rmSync(dataDir, { recursive: true, force: true });
    });
  }
  return { benches: benches as Instances["benches"], shared };
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

/** A member of a group without quota: only the pool can pay. */
async function memberWithPool({ benches: [first] }: Instances, points: number): Promise<Payer> {
  const groupId = crypto.randomUUID();
  await first.topup({ type: "group", id: groupId }, points);
  const who = payer({ groupId, tier: "free" });
  const month = new Date().toISOString().slice(0, 7);
  for (const project of ["", who.project!]) {
    await first.db.run(
      `INSERT INTO usage_months (user_id, month, project, requests, tokens, cost_nano_usd, quota_tokens, quota_cost_nano_usd)
       VALUES ($1, $2, $3, 1, 1, 1, 100000000, 100000000000)`,
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
      const deadline = Date.now() + 5_000;
      let again: Admission | null = null;
      while (!again && Date.now() < deadline) [again = null] = await admitAtOnce([b], who, 1);
      expect(again).not.toBeNull();
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

    test("a flushed Redis is told again what is reserved", async () => {
      const instances = await openInstances();
      const [a, b] = instances.benches;
      const who = await memberWithPool(instances, 2);
      await a.metering.admit(centRequest(who));
      const client = new Bun.RedisClient(redisUrl!);
      cleanups.push(() => client.close());
      for (const key of await client.send("KEYS", ["gateway:*"])) await client.del(key);
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
      await instances.shared[0]!.reservations.close();
      expect(await admitAtOnce([b], who, 1)).toEqual([expect.anything()]);
    });
  },
);
