import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { freshDatabase, onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type Counter, REFUSED } from "../../src/bus/contract.ts";
import { openBus } from "../../src/bus/index.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { ServiceError } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { KeyLimits, Payer } from "../../src/kernel/payer.ts";
import type { Admission, AdmitOptions } from "../../src/rooms/metering/index.ts";
import { databaseId, openStorage } from "../../src/storage/index.ts";
import {
  type Bench,
  CENT_TOKENS,
  centRequest,
  centUsage,
  openBench,
  outputRequest,
  payer,
  spend,
} from "./support.ts";

const CENT = 1e7;
const limited = (limits: Partial<KeyLimits>, fields: Partial<Payer> = {}): Payer =>
  payer({
    tier: "enterprise",
    keyLimits: {
      monthlyNanoUsd: null,
      totalNanoUsd: null,
      requestsPerMinute: null,
      tokensPerMinute: null,
      memberNanoUsd: null,
      ...limits,
    },
    ...fields,
  });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(fresh: () => Promise<TestDatabase>): Promise<{ bench: Bench; clock: ManualClock }> {
  const { options, drop } = await fresh();
  const db = await openStorage(options);
  const clock = new ManualClock();
  const bench = await openBench({ db, dataDir: options.dataDir, clock });
  cleanups.push(async () => {
    await bench.close();
    await db.close();
    await drop();
  });
  return { bench, clock };
}

/** The admission, or the refusal. */
async function attempt({ metering }: Bench, request: AdmitOptions): Promise<Admission | ServiceError> {
  try {
    return await metering.admit(request);
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
}

async function refused(bench: Bench, request: AdmitOptions): Promise<ServiceError> {
  const outcome = await attempt(bench, request);
  if (outcome instanceof ServiceError) return outcome;
  throw new Error("the request was admitted");
}

const admittedOf = (outcomes: readonly (Admission | ServiceError)[]): Admission[] =>
  outcomes.filter((outcome): outcome is Admission => !(outcome instanceof ServiceError));

const atOnce = (benches: readonly Bench[], who: Payer, count: number) =>
  Promise.all(
    Array.from({ length: count }, (_, i) => attempt(benches[i % benches.length]!, centRequest(who))),
  );

onEachDatabase("budgets of keys", (fresh) => {
  test("of 200 requests at once on a budget for ten, ten are admitted, whatever pays for them", async () => {
    const { bench } = await open(fresh);
    const group = crypto.randomUUID();
    await bench.topup({ type: "group", id: group }, 10_000);
    const payers = [
      limited({ monthlyNanoUsd: 10 * CENT }),
      limited({ totalNanoUsd: 10 * CENT }),
      limited({ totalNanoUsd: 10 * CENT, monthlyNanoUsd: 500 * CENT }, { tier: "pro" }),
      limited({ totalNanoUsd: 10 * CENT }, { groupId: group, costMultiplierMicros: 700_001 }),
    ];
    for (const who of payers) {
      const outcomes = await atOnce([bench], who, 200);
      const admitted = admittedOf(outcomes);
      expect(admitted).toHaveLength(10);
      // Settled, and before and after they are in the database: nothing more fits.
      for (const admission of admitted) admission.settle(centUsage());
      expect(admittedOf(await atOnce([bench], who, 20))).toHaveLength(0);
      await bench.metering.flush(10_000);
      expect(admittedOf(await atOnce([bench], who, 20))).toHaveLength(0);
    }
    expect(bench.metering.holdCount).toBe(0);
    expect(await bench.rows()).toHaveLength(40);
  });

  test("what a request did not take is there for others, and what was released is whole again", async () => {
    const { bench } = await open(fresh);
    const who = limited({ totalNanoUsd: 10 * CENT });
    const five = (await attempt(bench, centRequest(who, 10))) as Admission;
    expect(admittedOf(await atOnce([bench], who, 3))).toHaveLength(0);
    five.settle(centUsage(4));
    const admitted = admittedOf(await atOnce([bench], who, 50));
    expect(admitted).toHaveLength(6);
    for (const admission of admitted) admission.release();
    expect(admittedOf(await atOnce([bench], who, 50))).toHaveLength(6);
  });

  test("what comes free while a refusal looks for its reason admits the request", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const clock = new ManualClock();
    const alone = await openBus({ redisUrl: null, service: "", clock, ids: randomIds, log: silentLog });
    let whenRefused = () => {};
    const counter: Counter = {
      grant: async (asking) => {
        const granted = await alone.counter.grant(asking);
        if (granted === REFUSED) whenRefused();
        return granted;
      },
      hit: (limits) => alone.counter.hit(limits),
      change: (changes) => alone.counter.change(changes),
    };
    const bench = await openBench({
      db,
      dataDir: options.dataDir,
      clock,
      shared: { ...alone, counter },
    });
    cleanups.push(async () => {
      await bench.close();
      await db.close();
      await drop();
    });
    for (const limits of [{ totalNanoUsd: 2 * CENT }, { tokensPerMinute: 2 * CENT_TOKENS }]) {
      const who = limited(limits);
      const other = (await attempt(bench, centRequest(who, 2))) as Admission;
      whenRefused = () => other.release();
      expect(admittedOf([await attempt(bench, centRequest(who))])).toHaveLength(1);
      whenRefused = () => {};
      expect((await refused(bench, centRequest(who, 2))).message).toMatch(/this key/i);
    }
  });

  test("a member's part of the pool is one for all their keys, and another member's is another", async () => {
    const { bench, clock } = await open(fresh);
    const { userId } = payer();
    const group = { groupId: crypto.randomUUID(), userId };
    const [one, two] = [0, 1].map(() =>
      limited({ memberNanoUsd: 3 * CENT }, { ...group, keyId: crypto.randomUUID() }),
    ) as [Payer, Payer];
    await spend(bench, one, 2);
    expect(admittedOf(await atOnce([bench], two, 5))).toHaveLength(1);
    const late = await refused(bench, centRequest(one));
    expect(late.kind).toBe("quota_exceeded");
    expect(late.message).toContain("part of the group's pool, 0.03 USD");
    const other = { ...one, userId: crypto.randomUUID(), keyId: crypto.randomUUID() };
    expect(admittedOf(await atOnce([bench], other, 5))).toHaveLength(3);
    clock.nowMs = Date.parse("2026-12-01T00:00:01Z");
    expect(admittedOf([await attempt(bench, centRequest(one))])).toHaveLength(1);
  });

  test("a monthly budget is back with the month: 429 until then; a total one is not: 402", async () => {
    const { bench, clock } = await open(fresh);
    const monthly = limited({ monthlyNanoUsd: 2 * CENT });
    const total = limited({ totalNanoUsd: 2 * CENT, monthlyNanoUsd: 2 * CENT });
    for (const who of [monthly, total]) await spend(bench, who, 2);
    const late = await refused(bench, centRequest(monthly));
    expect(late.kind).toBe("quota_exceeded");
    expect(late.message).toContain("monthly budget of 0.02 USD");
    expect(late.retryAfterSeconds).toBe((Date.parse("2026-12-01T00:00:00Z") - clock.now()) / 1000);
    const gone = await refused(bench, centRequest(total));
    expect(gone.kind).toBe("payment_required");
    expect(gone.message).toContain("total budget of 0.02 USD");
    expect(gone.retryAfterSeconds).toBeUndefined();
    // A request that is under way when the month ends counts in the month in which it ends.
    const across = limited({ monthlyNanoUsd: 2 * CENT });
    const open2 = (await attempt(bench, centRequest(across, 2))) as Admission;
    await bench.metering.flush(10_000);
    clock.nowMs = Date.parse("2026-12-01T00:00:01Z");
    await spend(bench, monthly, 2);
    expect((await refused(bench, centRequest(monthly))).kind).toBe("quota_exceeded");
    expect((await refused(bench, centRequest(total))).kind).toBe("payment_required");
    open2.settle(centUsage(2));
    expect((await refused(bench, centRequest(across))).kind).toBe("quota_exceeded");
    await bench.metering.flush(10_000);
    expect((await refused(bench, centRequest(across))).kind).toBe("quota_exceeded");
    expect(await bench.usage.store.keySpend(monthly.keyId!)).toMatchObject({
      month: "2026-12",
      monthNanoUsd: 2 * CENT,
      totalNanoUsd: 4 * CENT,
    });
  });

  test("requests that are under way when the month ends do not overrun the budget of the next", async () => {
    const { bench, clock } = await open(fresh);
    const who = limited({ monthlyNanoUsd: 2 * CENT });
    clock.nowMs = Date.parse("2026-11-30T23:59:00Z");
    const across = admittedOf(await atOnce([bench], who, 5));
    expect(across).toHaveLength(2);
    clock.nowMs = Date.parse("2026-12-01T00:00:01Z");
    // They will count in December, so it has nothing left for others.
    expect(admittedOf(await atOnce([bench], who, 5))).toHaveLength(0);
    across[0]!.release();
    across[1]!.settle(centUsage());
    const [last, ...more] = admittedOf(await atOnce([bench], who, 5));
    expect(more).toHaveLength(0);
    last!.settle(centUsage());
    await bench.metering.flush(10_000);
    expect(await bench.usage.store.keySpend(who.keyId!)).toMatchObject({
      month: "2026-12",
      monthNanoUsd: 2 * CENT,
    });
    expect(bench.metering.holdCount).toBe(0);
  });

  test("a row of an earlier month that is written late counts in the total alone", async () => {
    const { bench, clock } = await open(fresh);
    const who = limited({ monthlyNanoUsd: 5 * CENT, totalNanoUsd: 50 * CENT });
    await spend(bench, who, 3);
    clock.nowMs += 20 * 86_400_000;
    await spend(bench, who, 1);
    // Both months in one batch.
    await bench.metering.flush(10_000);
    expect(await bench.usage.store.keySpend(who.keyId!)).toMatchObject({
      month: "2026-12",
      monthNanoUsd: CENT,
      totalNanoUsd: 4 * CENT,
    });
    clock.nowMs -= 20 * 86_400_000;
    await spend(bench, who, 1);
    await bench.metering.flush(10_000);
    expect(await bench.usage.store.keySpend(who.keyId!)).toMatchObject({
      month: "2026-12",
      monthNanoUsd: CENT,
      totalNanoUsd: 5 * CENT,
    });
  });

  test("an answer is limited to what the budget has, and a stream ends where it ends", async () => {
    const { bench } = await open(fresh);
    const who = limited({ totalNanoUsd: 1 * CENT });
    const lowered = (await attempt(bench, outputRequest(who, 5_000))) as Admission;
    expect(lowered).toMatchObject({ lowered: true, outputTokensHeld: 1_000 });
    lowered.release();
    const stream = (await attempt(bench, outputRequest(who, 600))) as Admission;
    expect(stream.lowered).toBe(false);
    expect(await stream.grow({ promptTokens: 10, completionTokens: 1_000 })).toBe(true);
    expect(await stream.grow({ promptTokens: 10, completionTokens: 1_001 })).toBe(false);
    expect((await refused(bench, outputRequest(who, 300))).kind).toBe("payment_required");
    stream.settle({ backend: "gateway", promptTokens: 10, completionTokens: 1_000, estimated: false });
    expect((await refused(bench, outputRequest(who, 300))).kind).toBe("payment_required");
  });

  test("a hold that moves from points to the quota is held against the budget once", async () => {
    const { bench } = await open(fresh);
    const who = limited({ totalNanoUsd: 2 * CENT });
    await bench.topup({ type: "user", id: who.userId }, 1);
    const stream = (await attempt(bench, outputRequest(who, 900))) as Admission;
    expect(await stream.grow({ promptTokens: 10, completionTokens: 2_000 })).toBe(true);
    expect((await refused(bench, centRequest(who))).kind).toBe("payment_required");
    stream.release();
    expect(admittedOf(await atOnce([bench], who, 5))).toHaveLength(2);
  });

  test("a budget of nothing lets through only what costs nothing", async () => {
    const { bench } = await open(fresh);
    const who = limited({ totalNanoUsd: 0 });
    expect((await refused(bench, centRequest(who))).kind).toBe("payment_required");
    const free = { ...centRequest(who), model: "a-model-without-a-price" };
    expect(await attempt(bench, free)).not.toBeInstanceOf(ServiceError);
  });

  test("tokens a minute: bounds while they run, then what was used, until that is a minute old", async () => {
    const { bench, clock } = await open(fresh);
    const who = limited({ tokensPerMinute: 10_000 });
    // 200 at once, of 1,000 tokens each.
    const admitted = admittedOf(await atOnce([bench], who, 200));
    expect(admitted).toHaveLength(10);
    const slow = await refused(bench, centRequest(who));
    expect(slow.kind).toBe("rate_limited");
    expect(slow.retryAfterSeconds).toBeGreaterThan(0);
    for (const admission of admitted) admission.settle({ ...centUsage(), promptTokens: 400 });
    expect(admittedOf(await atOnce([bench], who, 50)).map((admission) => admission.release())).toHaveLength(
      6,
    );
    clock.advance(30_000);
    expect((await refused(bench, centRequest(who, 7))).retryAfterSeconds).toBe(31);
    clock.advance(31_000);
    expect(admittedOf(await atOnce([bench], who, 50))).toHaveLength(10);
    // What never fits says so; an answer is limited to what fits a minute at all.
    const other = limited({ tokensPerMinute: 1_500 });
    expect((await refused(bench, centRequest(other, 2))).message).toContain("1500 a minute");
    const capped = (await attempt(bench, outputRequest(other, 9_000))) as Admission;
    expect(capped).toMatchObject({ lowered: true, outputTokensHeld: 1_490 });
    // Its pace does not cut an answer off.
    expect(await capped.grow({ promptTokens: 10, completionTokens: 9_000 })).toBe(true);
    capped.settle({ backend: "gateway", promptTokens: 10, completionTokens: 9_000, estimated: false });
    expect((await refused(bench, outputRequest(other, 10))).kind).toBe("rate_limited");
  });

  test("requests a minute, before the tier's", async () => {
    const { bench } = await open(fresh);
    const who = limited({ requestsPerMinute: 3 });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 20 }, async () => bench.metering.checkRate(who)),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
    const [failure] = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(failure!.reason).toMatchObject({ kind: "rate_limited", retryAfterSeconds: 60 });
  });

  test("a batch that was committed without an answer counts once, and is known at once", async () => {
    const { bench, clock } = await open(fresh);
    const who = limited({ totalNanoUsd: 10 * CENT });
    await spend(bench, who, 1);
    await bench.metering.flush(10_000);
    const { db } = bench;
    const transaction = db.transaction.bind(db);
    let lost = 0;
    db.transaction = async (work) => {
      const done = await transaction(work);
      if (lost++ === 0) throw new Error("the connection broke after the commit");
      return done;
    };
    for (let i = 0; i < 4; i++) await spend(bench, who, 1);
    await until("it is written again", async () => {
      clock.advance(1_000);
      return bench.metering.figures.rows === 0;
    });
    expect(lost).toBeGreaterThan(1);
    db.transaction = transaction;
    expect(await bench.usage.store.keySpend(who.keyId!)).toMatchObject({ totalNanoUsd: 5 * CENT });
    expect(admittedOf(await atOnce([bench], who, 30))).toHaveLength(5);
  });

  test("while the database is away, a known key keeps its budget and an unknown one is refused", async () => {
    const { bench } = await open(fresh);
    const known = limited({ totalNanoUsd: 3 * CENT });
    await spend(bench, known, 2);
    await bench.metering.flush(10_000);
    const { store } = bench.usage;
    store.keySpend = () => Promise.reject(new Error("no database"));
    // As after an edit: read again, which fails.
    const edited = { ...known, keyLimits: { ...known.keyLimits! } };
    expect((await refused(bench, centRequest(edited, 2))).kind).toBe("payment_required");
    expect(await attempt(bench, centRequest(edited, 1))).not.toBeInstanceOf(ServiceError);
    expect((await refused(bench, centRequest(limited({ totalNanoUsd: CENT })))).kind).toBe("unavailable");
    // A quota that cannot be read is passed over, as before; the key's own limits are not.
    store.month = () => Promise.reject(new Error("no database"));
    const free = limited({ tokensPerMinute: 5_000 }, { tier: "free" });
    expect(admittedOf(await atOnce([bench], free, 50))).toHaveLength(5);
  });

  test("what an earlier process journaled and did not write is counted by the next one", async () => {
    const { options, drop } = await fresh();
    const dataDir = mkdtempSync(join(tmpdir(), "key-budgets-"));
    const db = await openStorage(options);
    cleanups.push(async () => {
      await db.close();
      await drop();
      rmSync(dataDir, { recursive: true, force: true });
    });
    const who = limited({ totalNanoUsd: 3 * CENT });
    const script = `
      const { openStorage } = await import(${JSON.stringify(join(import.meta.dir, "../../src/storage/index.ts"))});
      const { openBench, centRequest, centUsage } = await import(${JSON.stringify(join(import.meta.dir, "support.ts"))});
      const { systemClock } = await import(${JSON.stringify(join(import.meta.dir, "../../src/kernel/clock.ts"))});
      const db = await openStorage(${JSON.stringify(options)});
      const bench = await openBench({ db, dataDir: ${JSON.stringify(dataDir)}, clock: systemClock });
      const admission = await bench.metering.admit(centRequest(${JSON.stringify(who)}, 2));
      await bench.metering.admit(centRequest(${JSON.stringify(who)}, 1));
      admission.settle(centUsage(2));
      process.kill(process.pid, "SIGKILL");`;
    const killed = Bun.spawn([process.execPath, "-e", script], { stdout: "inherit", stderr: "inherit" });
    await killed.exited;
    expect(killed.signalCode).toBe("SIGKILL");
    const bench = await openBench({ db, dataDir, clock: systemClock });
    cleanups.push(() => bench.close());
    await bench.metering.start();
    expect(admittedOf(await atOnce([bench], who, 20))).toHaveLength(1);
  });
});

const redisUrl = process.env.TEST_REDIS_URL;
describe.if(redisUrl !== undefined && process.env.TEST_POSTGRES_URL !== undefined)("three instances", () => {
  test("share a key's budget and pace: exactly what fits", async () => {
    const { options, drop } = await freshDatabase("postgres");
    cleanups.push(drop);
    const benches: Bench[] = [];
    for (let i = 0; i < 3; i++) {
      const dataDir = mkdtempSync(join(tmpdir(), "key-budgets-"));
      const db = await openStorage(options);
      const parts = await openBus({
        redisUrl: redisUrl!,
        service: await databaseId(db, options),
        clock: systemClock,
        ids: randomIds,
        log: silentLog,
      });
      const bench = await openBench({ db, dataDir, clock: systemClock, shared: parts });
      benches.push(bench);
      cleanups.push(async () => {
        await bench.close();
        await parts.close();
        await db.close();
        rmSync(dataDir, { recursive: true, force: true });
      });
    }
    const group = crypto.randomUUID();
    await benches[0]!.topup({ type: "group", id: group }, 10_000);
    const payers = [
      limited({ monthlyNanoUsd: 10 * CENT, totalNanoUsd: 12 * CENT }),
      limited({ totalNanoUsd: 10 * CENT }, { groupId: group, costMultiplierMicros: 1_300_007 }),
      limited({ tokensPerMinute: 10_000 }, { tier: "pro" }),
    ];
    for (const who of payers) {
      const outcomes = await atOnce(benches, who, 200);
      const admitted = admittedOf(outcomes);
      expect(admitted).toHaveLength(10);
      for (const admission of admitted) admission.settle(centUsage());
      expect(admittedOf(await atOnce(benches, who, 30))).toHaveLength(0);
      await Promise.all(benches.map((bench) => bench.metering.flush(10_000)));
      expect(admittedOf(await atOnce(benches, who, 30))).toHaveLength(0);
    }
    // Half of what is held comes back: each freed cent is taken once.
    const who = limited({ totalNanoUsd: 20 * CENT });
    const twos = await Promise.all(
      Array.from({ length: 30 }, (_, i) => attempt(benches[i % 3]!, centRequest(who, 2))),
    );
    const held = admittedOf(twos);
    expect(held).toHaveLength(10);
    for (const admission of held) admission.settle(centUsage(1));
    expect(admittedOf(await atOnce(benches, who, 60))).toHaveLength(10);
  });
});
