import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { freshDatabase, onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { ServiceError } from "../../src/kernel/errors.ts";
import { createLog, type Log } from "../../src/kernel/log.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import type { Admission } from "../../src/rooms/metering/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openStorage } from "../../src/storage/index.ts";
import {
  type Bench,
  type BenchOptions,
  centRequest,
  centUsage,
  openBench,
  outputRequest,
  payer,
  person,
  spend,
} from "./support.ts";

const freshSqlite = () => freshDatabase("sqlite");

/** The free tier: one dollar, so a hundred cents, and 100,000 tokens, so a hundred requests of 1,000. */
const FREE_CENTS = 100;

async function withBench(
  fresh: () => Promise<TestDatabase>,
  work: (bench: Bench, clock: ManualClock) => Promise<void>,
  change: (options: BenchOptions) => BenchOptions = (options) => options,
): Promise<void> {
  const { options, drop } = await fresh();
  const db = await openStorage(options);
  const clock = new ManualClock();
  const bench = await openBench(change({ db, dataDir: options.dataDir, clock }));
  try {
    await work(bench, clock);
  } finally {
    await bench.close();
    await db.close();
    await drop();
  }
}

async function refusal(bench: Bench, who: Payer, cents = 1): Promise<ServiceError> {
  try {
    await bench.metering.admit(centRequest(who, cents));
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
  throw new Error("the request was admitted");
}

onEachDatabase("admission", (fresh) => {
  test("the tier's quota ends with its last cent: 429 until the next UTC month", () =>
    withBench(fresh, async (bench, clock) => {
      const who = payer();
      for (let i = 0; i < FREE_CENTS; i++) await spend(bench, who);
      const error = await refusal(bench, who);
      expect(error.kind).toBe("quota_exceeded");
      expect(error.retryAfterSeconds).toBe((Date.parse("2026-12-01T00:00:00Z") - clock.now()) / 1000);
      // The same once the database has the rows, and on a process that never saw them.
      expect(await bench.metering.flush(10_000)).toBe(true);
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      expect((await refusal(bench, { ...who, keyId: crypto.randomUUID() })).kind).toBe("quota_exceeded");
    }));

  test("someone who ever had points is asked to pay: 402", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await bench.topup({ type: "user", id: who.userId }, 2);
      await spend(bench, who, 2);
      for (let i = 0; i < FREE_CENTS; i += 10) await spend(bench, who, 10);
      await bench.metering.flush(10_000);
      const error = await refusal(bench, who);
      expect(error.kind).toBe("payment_required");
      expect(error.retryAfterSeconds).toBeGreaterThan(0);
      const rows = await bench.rows();
      expect(rows.filter(({ points }) => points === 2)).toHaveLength(1);
      expect(
        rows.filter(({ points, account_type }) => points === null && account_type === null),
      ).toHaveLength(10);
    }));

  test("points pay before the quota, and what they pay does not count against it", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await bench.topup({ type: "user", id: who.userId }, 1000);
      for (let i = 0; i < 5; i++) await spend(bench, who, 100);
      await bench.metering.flush(10_000);
      const rows = await bench.rows();
      expect(rows.map(({ points, account_type }) => [points, account_type])).toEqual(
        Array(5).fill([100, "user"]),
      );
      const month = await bench.usage.month({ userId: who.userId, month: "2026-11", project: "" });
      expect(month).toEqual({
        requests: 5,
        tokens: 500_000,
        costNanoUsd: 5e9,
        quotaTokens: 0,
        quotaCostNanoUsd: 0,
        keyQuotaTokens: 0,
        keyQuotaCostNanoUsd: 0,
      });
    }));

  test("a group key draws on the pool by the member's multiplier", () =>
    withBench(fresh, async (bench) => {
      const groupId = crypto.randomUUID();
      const who = payer({ groupId, costMultiplierMicros: 1_500_000 });
      await bench.topup({ type: "group", id: groupId }, 10);
      await spend(bench, who, 2);
      await bench.metering.flush(10_000);
      expect(await bench.rows()).toMatchObject([{ points: 3, account_type: "group", cost: 0.02 }]);
    }));

  test("labels do not multiply a quota: a key is held to its project's window and to that of all keys", () =>
    withBench(fresh, async (bench) => {
      const userId = crypto.randomUUID();
      let served = 0;
      for (let i = 0; i < FREE_CENTS + 20; i++) {
        const who = payer({ userId, keyId: crypto.randomUUID(), project: `label-${i}` });
        try {
          await spend(bench, who);
          served++;
        } catch (error) {
          expect((error as ServiceError).kind).toBe("quota_exceeded");
        }
      }
      expect(served).toBe(FREE_CENTS);
      await bench.metering.flush(10_000);
      const other = payer({ userId, project: "yet another" });
      expect((await refusal(bench, other)).kind).toBe("quota_exceeded");
      const whole = await bench.usage.month({ userId, month: "2026-11", project: "" });
      expect(whole).toMatchObject({
        quotaTokens: 100_000,
        keyQuotaTokens: 100_000,
        keyQuotaCostNanoUsd: 1e9,
      });
    }));

  test("what a signed-in person does counts in the whole user's window only, which keys count in, too", () =>
    withBench(fresh, async (bench) => {
      const userId = crypto.randomUUID();
      const [a, b, me] = [payer({ userId, project: "a" }), payer({ userId, project: "b" }), person(userId)];
      for (let i = 0; i < 10; i++) await spend(bench, me, 10);
      await bench.metering.flush(10_000);
      // What the person did has no project, so it fills the user's window only.
      expect((await refusal(bench, me)).kind).toBe("quota_exceeded");
      for (let i = 0; i < 9; i++) await spend(bench, a, 10);
      for (let i = 0; i < 10; i++) await spend(bench, b);
      for (const key of [a, b]) expect((await refusal(bench, key)).kind).toBe("quota_exceeded");
      expect((await refusal(bench, me)).kind).toBe("quota_exceeded");
    }));

  test("a model without a price costs tokens only", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await bench.topup({ type: "user", id: who.userId }, 1000);
      const unpriced = { ...centRequest(who, 99), model: "my-own-llama" };
      (await bench.metering.admit(unpriced)).settle(centUsage(99));
      await bench.metering.flush(10_000);
      expect(await bench.rows()).toMatchObject([{ cost: null, points: null, total_tokens: 99_000 }]);
      const small = () => ({ ...centRequest(who), model: "my-own-llama" });
      (await bench.metering.admit(small())).settle(centUsage(1));
      await bench.metering.flush(10_000);
      expect(() => bench.metering.admit(small())).toThrow("max_tokens");
      // Points still pay for what has a price.
      await spend(bench, who);
    }));

  test("a prompt is counted only for those whom something limits", () =>
    withBench(fresh, async (bench) => {
      let counted = 0;
      const admit = async (who: Payer) => {
        const bound = { outputTokensMax: 100, outputTokensMin: 100 };
        const request = {
          ...centRequest(who),
          bound: {
            ...bound,
            get promptTokens() {
              return ++counted;
            },
          },
        };
        (await bench.metering.admit(request)).release();
      };
      await admit(payer({ tier: "enterprise" }));
      expect(counted).toBe(0);
      await admit(payer());
      expect(counted).toBe(1);
    }));

  test("an unlimited tier has no end, and its use is counted", () =>
    withBench(fresh, async (bench) => {
      const who = payer({ tier: "enterprise" });
      for (let i = 0; i < 3; i++) await spend(bench, who, 5000);
      await bench.metering.flush(10_000);
      const month = await bench.usage.month({ userId: who.userId, month: "2026-11", project: "default" });
      expect(month.quotaCostNanoUsd).toBe(150e9);
    }));

  test("an unknown tier has the free tier's limits", () =>
    withBench(fresh, async (bench) => {
      const who = payer({ tier: "platinum" });
      await spend(bench, who, FREE_CENTS);
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
    }));
});

onEachDatabase("holds", (fresh) => {
  test("of 1,000 concurrent requests on a pool that covers 10, exactly 10 are paid from it", () =>
    withBench(fresh, async (bench) => {
      const groupId = crypto.randomUUID();
      await bench.topup({ type: "group", id: groupId }, 10);
      const drained = payer({ groupId });
      // Without quota of their own, only those ten may pass.
      await spend(bench, { ...drained, groupId: null }, FREE_CENTS);
      await bench.metering.flush(10_000);
      const results = await Promise.allSettled(
        Array.from({ length: 1000 }, async () => bench.metering.admit(centRequest(drained))),
      );
      const admitted = results.filter(
        (one): one is PromiseFulfilledResult<Admission> => one.status === "fulfilled",
      );
      const refused = results.filter((one): one is PromiseRejectedResult => one.status === "rejected");
      expect(admitted).toHaveLength(10);
      expect(new Set(refused.map(({ reason }) => reason.kind))).toEqual(new Set(["payment_required"]));
      for (const { value } of admitted) value.settle(centUsage());
      expect((await refusal(bench, drained)).kind).toBe("payment_required");
      await bench.metering.flush(10_000);
      expect((await bench.rows()).filter(({ points }) => points === 1)).toHaveLength(10);
      expect((await bench.ledger.statement({ type: "group", id: groupId })).balance).toBe(0);
    }));

  test("with quota to fall back on, all 1,000 pass and still exactly 10 are paid from the pool", () =>
    withBench(fresh, async (bench) => {
      const groupId = crypto.randomUUID();
      await bench.topup({ type: "group", id: groupId }, 10);
      const who = payer({ groupId, tier: "enterprise" });
      const admissions = await Promise.all(
        Array.from({ length: 1000 }, () => bench.metering.admit(centRequest(who))),
      );
      for (const admission of admissions.toReversed()) admission.settle(centUsage());
      await bench.metering.flush(30_000);
      const rows = await bench.rows();
      expect(rows).toHaveLength(1000);
      expect(rows.filter(({ points }) => points === 1)).toHaveLength(10);
      expect(rows.filter(({ points }) => points === null)).toHaveLength(990);
    }));

  test("the last cents of a quota are promised once", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await spend(bench, who, FREE_CENTS - 3);
      const results = await Promise.allSettled(
        Array.from({ length: 50 }, async () => bench.metering.admit(centRequest(who))),
      );
      expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
    }));

  test("what was admitted before a restart is held again, though nothing is left", () =>
    withBench(fresh, async (bench) => {
      const { metering } = bench;
      const resume = (who: Payer, cents: number) => {
        const { bound: _, ...request } = centRequest(who);
        return metering.resume({ ...request, bound: { costUsd: cents / 100 } });
      };
      const paying = payer();
      await bench.topup({ type: "user", id: paying.userId }, 10);
      // Another request took the room while this one was not known here.
      const other = await metering.admit(centRequest(paying, 8));
      const resumed = await resume(paying, 5);
      // The quota is untouched: it is the points that will pay.
      const fromQuota = await metering.admit(centRequest(paying, FREE_CENTS));
      fromQuota.release();
      other.release();
      expect(await metering.holdPoints({ type: "user", id: paying.userId }, 6)).toBeNull();
      resumed.settle({ ...centUsage(0), costUsd: 0.05 });
      await metering.flush(10_000);
      expect((await bench.ledger.statement({ type: "user", id: paying.userId })).balance).toBe(5);

      const free = payer();
      const running = await metering.admit(centRequest(free, FREE_CENTS - 20));
      const again = await resume(free, 30);
      running.release();
      await spend(bench, free, FREE_CENTS - 30);
      expect((await refusal(bench, free)).kind).toBe("quota_exceeded");
      again.release();
      expect(metering.holdCount).toBe(0);
      await spend(bench, free, 1);
    }));

  test("a hold ends with its request, by release or settlement, and never by time", () =>
    withBench(fresh, async (bench, clock) => {
      const { metering } = bench;
      const who = payer();
      const first = await metering.admit(centRequest(who, FREE_CENTS));
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      first.release();
      expect(metering.holdCount).toBe(0);

      const second = await metering.admit(centRequest(who, FREE_CENTS));
      second.settle(centUsage(1));
      expect(metering.holdCount).toBe(0);
      // Later calls do nothing.
      second.settle(centUsage(50));
      second.release();

      const long = await metering.admit(centRequest(who, FREE_CENTS - 1));
      clock.advance(3 * 3_600_000);
      expect(metering.holdCount).toBe(1);
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      long.settle(centUsage(1));
      expect(metering.holdCount).toBe(0);
      await metering.flush(10_000);
      (await metering.admit(centRequest(who))).release();
      expect((await bench.rows()).map(({ total_tokens }) => total_tokens)).toEqual([1000, 1000]);
    }));
});

onEachDatabase("a bound", (fresh) => {
  test("is held as a whole where there is room, and otherwise lowered to what is left", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await spend(bench, { ...who, groupId: null }, FREE_CENTS);
      await bench.topup({ type: "user", id: who.userId }, 10);
      const whole = await bench.metering.admit(outputRequest(who, 4_000));
      expect(whole).toMatchObject({ outputTokensHeld: 4_000, lowered: false });
      const lowered = await bench.metering.admit(outputRequest(who, 50_000));
      expect(lowered).toMatchObject({ outputTokensHeld: 6_000, lowered: true });
      await expect(async () => bench.metering.admit(outputRequest(who, 50_000))).toThrow(
        "Requests in progress hold the rest of your points",
      );
      whole.release();
      // What is left is fewer than the least that is worth it.
      await expect(async () => bench.metering.admit(outputRequest(who, 50_000, 4_001))).toThrow();
      lowered.release();
      expect(bench.metering.holdCount).toBe(0);
    }));

  test("goes to the quota as a whole before it is lowered to what the points pay", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await bench.topup({ type: "user", id: who.userId }, 2);
      const whole = await bench.metering.admit(outputRequest(who, 50_000));
      expect(whole.lowered).toBe(false);
      const rest = await bench.metering.admit(outputRequest(who, 90_000));
      // The points' 2,000 tokens rather than the quota's 50,000 and more: points come first.
      expect(rest).toMatchObject({ outputTokensHeld: 2_000, lowered: true });
      whole.release();
      rest.release();
    }));

  test("of the request that crosses a quota's line is at most what is left and 1,024 tokens", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await spend(bench, who, FREE_CENTS - 5);
      // 5,000 tokens are left, in dollars and in tokens; the prompt has 10 of them.
      const crossing = await bench.metering.admit(outputRequest(who, 80_000));
      expect(crossing).toMatchObject({ outputTokensHeld: 5_000 - 10 + 1_024, lowered: true });
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      expect(await crossing.grow({ promptTokens: 10, completionTokens: 6_100 })).toBe(false);
      crossing.release();
    }));

  test("grows in its cover, then as a whole into the quota, and no further", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await bench.topup({ type: "user", id: who.userId }, 10);
      const held = await bench.metering.admit(outputRequest(who, 4_000));
      const total = (completionTokens: number) => ({ promptTokens: 10, completionTokens });
      expect(await held.grow(total(9_000))).toBe(true);
      // 10 points pay 10,000 tokens, the quota 100,000.
      await expect(async () =>
        bench.metering.admit(outputRequest(payer(), 100_000_000, 90_000_000)),
      ).toThrow();
      expect(await held.grow(total(20_000))).toBe(true);
      // The points are free again.
      const other = await bench.metering.admit({ ...outputRequest(who, 10_000), payer: who });
      expect(other).toMatchObject({ outputTokensHeld: 10_000, lowered: false });
      expect(await held.grow(total(200_000))).toBe(false);
      expect(await held.grow(total(99_000))).toBe(true);
      other.release();
      held.settle({ backend: "gateway", promptTokens: 10, completionTokens: 99_000, estimated: false });
      expect(await held.grow(total(1))).toBe(false);
      await bench.metering.flush(10_000);
      expect(await bench.rows()).toMatchObject([{ points: null, cost: 0.99 }]);
    }));

  test("a hold on points grows into a quota without limits", () =>
    withBench(fresh, async (bench) => {
      const who = payer({ tier: "enterprise" });
      await bench.topup({ type: "user", id: who.userId }, 10);
      const held = await bench.metering.admit(outputRequest(who, 5_000));
      const total = (completionTokens: number) => ({ promptTokens: 10, completionTokens });
      expect(await held.grow(total(9_000))).toBe(true);
      expect(await held.grow(total(900_000))).toBe(true);
      expect(await held.grow(total(9_000_000))).toBe(true);
      // The points are free again.
      const all = await bench.metering.holdPoints({ type: "user", id: who.userId }, 10);
      expect(all).not.toBeNull();
      all!.release();
      held.settle({ backend: "gateway", promptTokens: 10, completionTokens: 900_000, estimated: false });
      expect(bench.metering.holdCount).toBe(0);
      await bench.metering.flush(10_000);
      expect(await bench.rows()).toMatchObject([{ points: null, cost: 9 }]);
    }));

  test("points that requests hold cannot be moved away, and what is moved cannot be held", () =>
    withBench(fresh, async (bench) => {
      const groupId = crypto.randomUUID();
      const account = { type: "group", id: groupId } as const;
      await bench.topup(account, 10);
      const who = payer({ groupId });
      await spend(bench, { ...who, groupId: null }, FREE_CENTS);
      const request = await bench.metering.admit(centRequest(who, 7));
      expect(await bench.metering.holdPoints(account, 4)).toBeNull();
      const moving = await bench.metering.holdPoints(account, 3);
      expect((await refusal(bench, who)).kind).toBe("payment_required");
      moving!.release();
      moving!.release();
      request.release();
      const all = await bench.metering.holdPoints(account, 10);
      expect(all).not.toBeNull();
      all!.release();
    }));
});

describe("calendar", () => {
  test("a month ends at midnight UTC; a request counts when it ends", () =>
    withBench(freshSqlite, async (bench, clock) => {
      clock.nowMs = Date.parse("2026-11-30T23:59:59.900Z");
      const who = payer();
      const across = await bench.metering.admit(centRequest(who, FREE_CENTS));
      const error = await refusal(bench, who);
      expect(error.retryAfterSeconds).toBe(1);
      clock.nowMs = Date.parse("2026-12-01T00:00:00.000Z");
      across.settle(centUsage(FREE_CENTS));
      expect((await refusal(bench, who)).retryAfterSeconds).toBe(31 * 86_400);
      await bench.metering.flush(10_000);
      const month = (name: string) =>
        bench.usage.month({ userId: who.userId, month: name, project: "default" });
      expect((await month("2026-11")).requests).toBe(0);
      expect((await month("2026-12")).requests).toBe(1);
    }));

  test("days on which clocks change are as long as others", () =>
    withBench(freshSqlite, async (bench, clock) => {
      const who = payer({ tier: "enterprise" });
      // Around the changes of Europe and North America in 2026, and the leap day of 2028.
      for (const day of ["2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01", "2028-02-29"]) {
        for (const time of ["00:00:00.000", "01:30:00.000", "02:30:00.000", "23:59:59.999"]) {
          clock.nowMs = Date.parse(`${day}T${time}Z`);
          await spend(bench, who);
        }
      }
      await bench.metering.flush(10_000);
      const { groups } = (await bench.usage.query({ group_by: "day" })) as {
        groups: { key: string; requests: number }[];
      };
      expect(groups.map(({ key, requests }) => [key, requests])).toEqual([
        ["2026-03-08", 4],
        ["2026-03-29", 4],
        ["2026-10-25", 4],
        ["2026-11-01", 4],
        ["2028-02-29", 4],
      ]);
    }));

  test.each([
    ["a person", person()],
    ["a key", payer()],
  ])("what %s has under way when the month ends leaves the next month only the rest", (_, who) =>
    withBench(freshSqlite, async (bench, clock) => {
      clock.nowMs = Date.parse("2026-11-30T23:30:00Z");
      const across = await Promise.all(
        Array.from({ length: 4 }, () => bench.metering.admit(centRequest(who, FREE_CENTS / 4))),
      );
      clock.nowMs = Date.parse("2026-12-01T00:00:00Z");
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      across[0]!.release();
      await spend(bench, who, FREE_CENTS / 4);
      for (const admission of across.slice(1)) admission.settle(centUsage(FREE_CENTS / 4));
      expect(bench.metering.holdCount).toBe(0);
      await bench.metering.flush(10_000);
      const month = (name: string) => bench.usage.month({ userId: who.userId, month: name, project: "" });
      expect((await month("2026-12")).quotaCostNanoUsd).toBe(1e9);
      expect((await month("2026-11")).quotaCostNanoUsd).toBe(0);
      expect((await bench.ledger.statement({ type: "user", id: who.userId })).debt ?? 0).toBe(0);
    }),
  );

  test("a clock that jumps into another month and back uses that month's quota", () =>
    withBench(freshSqlite, async (bench, clock) => {
      const who = payer();
      await spend(bench, who, FREE_CENTS);
      const november = clock.nowMs;
      clock.nowMs = Date.parse("2027-03-01T00:00:00Z");
      await spend(bench, who);
      clock.nowMs = november;
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      clock.nowMs = Date.parse("2025-01-01T00:00:00Z");
      await spend(bench, who);
    }));
});

describe("a check that cannot be made", () => {
  /** A database whose reads fail while `broken` is set, and take until `answers`. */
  const breakable = (db: Database) => {
    const state = { broken: false, answers: Promise.resolve() };
    const wrapped: Database = {
      dialect: db.dialect,
      all: (sql, params) => db.all(sql, params),
      get: async (sql, params) => {
        if (state.broken) throw new Error("connection lost");
        await state.answers;
        return db.get(sql, params);
      },
      run: (sql, params) => db.run(sql, params),
      report: (sql, params) => db.report(sql, params),
      transaction: (work) => db.transaction(work),
      lendWrites: (work) => db.lendWrites(work),
      checkpoint: () => db.checkpoint(),
      close: () => db.close(),
    };
    return { state, wrapped };
  };

  type State = ReturnType<typeof breakable>["state"];
  async function withBreakable(
    work: (bench: Bench, clock: ManualClock, state: State) => Promise<void>,
    log?: Log,
  ): Promise<void> {
    let state: State;
    await withBench(
      freshSqlite,
      (bench, clock) => work(bench, clock, state),
      (options) => {
        const broken = breakable(options.db);
        ({ state } = broken);
        return { ...options, db: broken.wrapped, ...(log && { log }) };
      },
    );
  }

  test("lets the request through and says so in the log", async () => {
    const lines: string[] = [];
    const log = createLog({ level: "warn", format: "json", write: (line) => lines.push(line) });
    await withBreakable(async (bench, _, state) => {
      state.broken = true;
      await spend(bench, payer());
      expect(lines.join("")).toContain("quota check failed; request admitted unchecked");
      state.broken = false;
      // One failure says nothing of the next check.
      expect((await refusal(bench, payer(), FREE_CENTS + 1)).kind).toBe("quota_exceeded");
      await bench.metering.flush(10_000);
      expect(await bench.rows()).toHaveLength(1);
    }, log);
  });

  test("does not change what is already known", () =>
    withBreakable(async (bench, clock, state) => {
      const who = payer();
      await spend(bench, who, FREE_CENTS);
      state.broken = true;
      clock.advance(120_000);
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
    }));

  test("is waited for while the database is slow, and refused after ten seconds", () =>
    withBreakable(async (bench, clock, state) => {
      const slow = Promise.withResolvers<void>();
      state.answers = slow.promise;
      const userId = crypto.randomUUID();
      const outcomes = Array.from({ length: FREE_CENTS + 50 }, () =>
        bench.metering.admit(centRequest(payer({ userId }))).then(
          () => "admitted",
          ({ kind }) => kind,
        ),
      );
      await Bun.sleep(0);
      clock.advance(9_000);
      slow.resolve();
      expect((await Promise.all(outcomes)).filter((outcome) => outcome === "admitted")).toHaveLength(
        FREE_CENTS,
      );
      state.answers = new Promise(() => {});
      const refused = refusal(bench, payer());
      await Bun.sleep(0);
      clock.advance(10_000);
      expect(await refused).toMatchObject({ kind: "unavailable", retryAfterSeconds: 5 });
    }));
});

describe("requests a minute", () => {
  const attempt = async (bench: Bench, who: Payer) => {
    try {
      await bench.metering.checkRate(who);
      return 0;
    } catch (error) {
      expect((error as ServiceError).kind).toBe("rate_limited");
      return (error as ServiceError).retryAfterSeconds;
    }
  };

  test("each key has its tier's, and Retry-After is 60", () =>
    withBench(freshSqlite, async (bench, clock) => {
      const [a, b] = [payer(), payer()];
      for (let i = 0; i < 10; i++) expect(await attempt(bench, a)).toBe(0);
      expect(await attempt(bench, a)).toBe(60);
      expect(await attempt(bench, b)).toBe(0);
      clock.advance(60_000);
      expect(await attempt(bench, a)).toBe(0);
      const pro = payer({ tier: "pro" });
      for (let i = 0; i < 120; i++) expect(await attempt(bench, pro)).toBe(0);
      expect(await attempt(bench, pro)).toBe(60);
    }));

  test("a group's ceiling counts all its keys together, and never raises what a key may make", () =>
    withBench(freshSqlite, async (bench) => {
      const low = payer({ groupId: crypto.randomUUID(), rpmCeiling: 2 });
      const high = payer({ groupId: crypto.randomUUID(), rpmCeiling: 500 });
      const colleague = payer({ groupId: low.groupId, rpmCeiling: 2 });
      expect(await attempt(bench, low)).toBe(0);
      expect(await attempt(bench, colleague)).toBe(0);
      expect(await attempt(bench, low)).toBe(60);
      expect(await attempt(bench, colleague)).toBe(60);
      for (let i = 0; i < 10; i++) expect(await attempt(bench, high)).toBe(0);
      expect(await attempt(bench, high)).toBe(60);
    }));

  test("a signed-in person has none", () =>
    withBench(freshSqlite, async (bench) => {
      for (let i = 0; i < 50; i++) expect(await attempt(bench, person())).toBe(0);
    }));
});
