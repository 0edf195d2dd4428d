/** What neither points nor a quota pay stands as a debt, and blocks its debtor until it is paid. */
import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { ServiceError } from "../../src/kernel/errors.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openStorage } from "../../src/storage/index.ts";
import { type Bench, centRequest, centUsage, openBench, payer, person, spend } from "./support.ts";

const FREE_CENTS = 100;
const DECEMBER = Date.parse("2026-12-01T00:00:00Z");

async function withBench(
  fresh: () => Promise<TestDatabase>,
  work: (bench: Bench, clock: ManualClock, db: Database) => Promise<void>,
): Promise<void> {
  const { options, drop } = await fresh();
  const db = await openStorage(options);
  const clock = new ManualClock();
  const bench = await openBench({ db, dataDir: options.dataDir, clock });
  try {
    await work(bench, clock, db);
    expect((await verifyLedger(db)).problems).toEqual([]);
  } finally {
    await bench.close();
    await db.close();
    await drop();
  }
}

async function refusal(bench: Bench, who: Payer, cents = 1): Promise<ServiceError> {
  try {
    (await bench.metering.admit(centRequest(who, cents))).release();
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
  throw new Error("the request was admitted");
}

/** A request that was held for one cent and costs more; it is in the books when this returns. */
async function overrun(bench: Bench, who: Payer, cents: number): Promise<void> {
  const admission = await bench.metering.admit(centRequest(who));
  admission.settle(centUsage(cents));
  expect(await bench.metering.flush(10_000)).toBe(true);
}

const drainQuota = async (bench: Bench, who: Payer) => {
  await spend(bench, { ...who, groupId: null }, FREE_CENTS);
  expect(await bench.metering.flush(10_000)).toBe(true);
};
const wallet = (who: Payer) => ({ type: "user", id: who.userId }) as const;
const pool = (who: Payer) => ({ type: "group", id: who.groupId! }) as const;
const month = (bench: Bench, who: Payer, name: string) =>
  bench.usage.month({ userId: who.userId, month: name, project: "" });

onEachDatabase("a debt", (fresh) => {
  test("is what the points and a drained quota do not pay; the account goes to zero, not below", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 11);
      await overrun(bench, who, 60);
      const statement = await bench.ledger.statement(wallet(who));
      expect(statement).toMatchObject({ balance: 0, debt: 49, debts: [{ user_id: who.userId, points: 49 }] });
      expect(statement.entries[0]).toMatchObject({ kind: "settlement", points: -11 });
      expect(statement.debt_entries).toMatchObject([{ kind: "debt", points: -49, balance_after: -49 }]);
      const rows = await bench.rows();
      expect(rows.at(-1)).toMatchObject({ points: 60, account_type: "user" });
      // It does not count against the quota as well.
      expect((await month(bench, who, "2026-11")).quotaCostNanoUsd).toBe(1e9);
      expect(await bench.billing.plan({ userId: who.userId } as never)).toMatchObject({
        points_balance: 0,
        debt_points: 49,
      });
    }));

  test("blocks every way to spend until it is paid, with words that say what is owed", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 1);
      await overrun(bench, who, 30);
      const unpriced = { ...centRequest(who), model: "my-own-llama" };
      for (const request of [centRequest(who), unpriced, centRequest(person(who.userId))]) {
        const refuse = async () => bench.metering.admit({ ...request, requestId: crypto.randomUUID() });
        const error = await refuse().then(
          () => null,
          (thrown) => thrown as ServiceError,
        );
        expect(error).toMatchObject({ kind: "payment_required", data: { debt_points: 29 } });
        expect(error!.message).toContain("You owe 29 points");
      }
      // A part is not enough.
      expect(await bench.topup(wallet(who), 9)).toBe(0);
      expect((await refusal(bench, who)).message).toContain("You owe 20 points");
      expect(await bench.topup(wallet(who), 25)).toBe(5);
      const { entries, debt_entries, debt } = await bench.ledger.statement(wallet(who));
      expect(debt).toBe(0);
      expect(entries[0]).toMatchObject({ kind: "repayment", points: -20, counterparty: { type: "debt" } });
      expect(debt_entries[0]).toMatchObject({ kind: "repayment", points: 20, balance_after: 0 });
      await spend(bench, who, 5);
    }));

  test("is not made while the quota has anything left: then the request counts there as a whole", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await spend(bench, who, FREE_CENTS - 1);
      await bench.topup(wallet(who), 5);
      await overrun(bench, who, 60);
      expect(await bench.ledger.statement(wallet(who))).toMatchObject({ balance: 5, debt: 0 });
      expect((await month(bench, who, "2026-11")).quotaCostNanoUsd).toBe(1.59e9);
      // The points are still there, and pay what they cover.
      await spend(bench, who, 5);
      expect((await refusal(bench, who)).kind).toBe("payment_required");
    }));

  test("within one batch the first request that finds the quota drained, and each after it, is owed", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      const admissions = await Promise.all(
        Array.from({ length: 5 }, () => bench.metering.admit(centRequest(who))),
      );
      for (const admission of admissions) admission.settle(centUsage(60));
      expect(await bench.metering.flush(10_000)).toBe(true);
      const rows = await bench.rows();
      expect(rows.filter(({ points }) => points === null)).toHaveLength(2);
      expect(rows.filter(({ points }) => points === 60)).toHaveLength(3);
      expect(await bench.ledger.statement(wallet(who))).toMatchObject({ balance: 0, debt: 180 });
      expect((await month(bench, who, "2026-11")).quotaCostNanoUsd).toBe(1.2e9);
      // Someone who never had points is told the same.
      expect((await refusal(bench, who)).kind).toBe("payment_required");
    }));

  test("of a group's key is the member's on that pool: others go on, and the pool's top-ups pay it first", () =>
    withBench(fresh, async (bench) => {
      const groupId = crypto.randomUUID();
      const [careless, careful] = [payer({ groupId }), payer({ groupId })];
      await drainQuota(bench, careless);
      await bench.topup(pool(careless), 3);
      await overrun(bench, careless, 40);
      const owed = await bench.ledger.statement(pool(careless));
      expect(owed).toMatchObject({ balance: 0, debts: [{ user_id: careless.userId, points: 37 }] });
      expect(await bench.ledger.debtsOf(careless.userId)).toEqual([{ account: pool(careless), points: 37 }]);
      expect((await refusal(bench, careless)).message).toContain("You owe 37 points on the group's pool");
      // The other member has a quota; the careless one a wallet of their own.
      await spend(bench, careful);
      await bench.topup(wallet(careless), 5);
      await spend(bench, { ...careless, groupId: null }, 5);
      expect(await bench.topup(pool(careless), 50)).toBe(13);
      await spend(bench, careless, 13);
    }));

  test("of a deleted group's key is the user's own", () =>
    withBench(fresh, async (bench) => {
      const who = payer({ groupId: crypto.randomUUID() });
      await drainQuota(bench, who);
      await bench.topup(pool(who), 5);
      const { ledger, metering } = bench;
      const admission = await metering.admit(centRequest(who));
      await ledger.transaction((tx) => ledger.close(tx, pool(who), { note: null, actor: "owner" }));
      admission.settle(centUsage(30));
      await metering.flush(10_000);
      expect(await ledger.statement(wallet(who))).toMatchObject({ balance: 0, debt: 30 });
      expect((await refusal(bench, { ...who, groupId: null })).message).toContain("You owe 30 points for");
    }));

  test("that stands when its group is deleted goes to the debtor, whose wallet pays what it has", () =>
    withBench(fresh, async (bench) => {
      const who = payer({ groupId: crypto.randomUUID() });
      await drainQuota(bench, who);
      await bench.topup(pool(who), 5);
      await overrun(bench, who, 30);
      await bench.topup(wallet(who), 10);
      const { ledger } = bench;
      await ledger.transaction((tx) => ledger.close(tx, pool(who), { note: null, actor: "owner" }));
      expect(await ledger.statement(pool(who))).toMatchObject({ balance: 0, debt: 0 });
      expect(await ledger.statement(wallet(who))).toMatchObject({ balance: 0, debt: 15 });
    }));

  test("never comes from a model without a price, nor from a tier without limits", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 1);
      bench.metering.record(
        { requestId: crypto.randomUUID(), payer: who, model: "my-own-llama", refId: null },
        centUsage(500),
      );
      const unlimited = payer({ tier: "enterprise" });
      await bench.topup(wallet(unlimited), 1);
      await overrun(bench, unlimited, 500);
      for (const one of [who, unlimited])
        expect(await bench.ledger.statement(wallet(one))).toMatchObject({ balance: 1, debt: 0 });
    }));

  test("lines of an earlier version, which name no tier, are judged by the user's own", () =>
    withBench(fresh, async (bench, _, db) => {
      const userId = crypto.randomUUID();
      await db.run(
        "INSERT INTO users (id, email, name, password_hash, is_admin, tier, created_at) VALUES ($1, $2, $3, $4, FALSE, $5, $6)",
        [userId, "old@example.com", "old", "x", "enterprise", new Date().toISOString()],
      );
      const who = { ...payer({ userId }), tier: null as unknown as string };
      bench.metering.record(
        { requestId: crypto.randomUUID(), payer: who, model: centRequest(who).model, refId: null },
        centUsage(5_000),
      );
      await bench.metering.flush(10_000);
      expect(await bench.ledger.statement(wallet(who))).toMatchObject({ debt: 0 });
      expect(await bench.rows()).toMatchObject([{ points: null, cost: 50 }]);
    }));
});

onEachDatabase("a new month's quota", (fresh) => {
  test("pays a debt as use of itself, before it pays for anything else", () =>
    withBench(fresh, async (bench, clock) => {
      const who = payer();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 10);
      await overrun(bench, who, 40);
      expect((await refusal(bench, who)).message).toContain("You owe 30 points");
      clock.nowMs = DECEMBER;
      await spend(bench, who, 70);
      const december = await bench.usage.store.month({ userId: who.userId, month: "2026-12", project: "" });
      expect(december).toMatchObject({ quotaCostNanoUsd: 0.3e9, keyQuotaCostNanoUsd: 0.3e9, requests: 0 });
      await bench.metering.flush(10_000);
      expect((await month(bench, who, "2026-12")).quotaCostNanoUsd).toBe(1e9);
      expect((await refusal(bench, who)).kind).toBe("payment_required");
      const { debt, debt_entries } = await bench.ledger.statement(wallet(who));
      expect(debt).toBe(0);
      expect(debt_entries[0]).toMatchObject({
        kind: "repayment",
        points: 30,
        counterparty: { type: "system", id: "quota" },
      });
    }));

  test("pays a debt of the wallet before the work of a group of one's own; the pool's points may pay that", () =>
    withBench(fresh, async (bench, clock) => {
      const who = payer();
      const ofGroup = { ...who, groupId: crypto.randomUUID() };
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 1);
      await overrun(bench, who, 151);
      expect((await refusal(bench, ofGroup)).message).toContain("You owe 150 points for");
      clock.nowMs = DECEMBER;
      expect((await refusal(bench, ofGroup)).message).toContain("You owe 50 points for");
      expect((await bench.ledger.statement(wallet(who))).debt).toBe(50);
      await bench.topup(pool(ofGroup), 5);
      await spend(bench, ofGroup, 5);
    }));

  test("pays a debt on a group's pool before the work of one's own key", () =>
    withBench(fresh, async (bench, clock) => {
      const who = payer();
      const ofGroup = { ...who, groupId: crypto.randomUUID() };
      await drainQuota(bench, who);
      await bench.topup(pool(ofGroup), 1);
      await overrun(bench, ofGroup, 151);
      clock.nowMs = DECEMBER;
      expect((await refusal(bench, who)).kind).toBe("quota_exceeded");
      expect((await bench.ledger.statement(pool(ofGroup))).debt).toBe(50);
    }));

  test("pays what it can; the rest stands until the month after", () =>
    withBench(fresh, async (bench, clock) => {
      const who = person();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 1);
      await overrun(bench, who, 251);
      clock.nowMs = DECEMBER;
      expect((await refusal(bench, who)).message).toContain("You owe 150 points");
      expect((await month(bench, who, "2026-12")).quotaCostNanoUsd).toBe(1e9);
      expect((await refusal(bench, who)).message).toContain("You owe 150 points");
      clock.nowMs = Date.parse("2027-01-01T00:00:00Z");
      expect((await refusal(bench, who)).message).toContain("You owe 50 points");
      clock.nowMs = Date.parse("2027-02-01T00:00:00Z");
      await spend(bench, who, 50);
      expect((await refusal(bench, who)).kind).toBe("payment_required");
    }));

  test("pays once, however many instances and requests find the debt at the same time", async () => {
    const { options, drop } = await fresh();
    const clock = new ManualClock();
    const parts = await Promise.all(
      Array.from({ length: 3 }, async () => {
        const storage = await fresh();
        const db = await openStorage(options);
        const bench = await openBench({ db, dataDir: storage.options.dataDir, clock });
        return { bench, db, drop: storage.drop };
      }),
    );
    const [{ bench: first, db }] = parts as [(typeof parts)[number]];
    try {
      const who = payer();
      await drainQuota(first, who);
      await first.topup(wallet(who), 1);
      await overrun(first, who, 31);
      clock.nowMs = DECEMBER;
      const admissions = await Promise.all(
        parts.flatMap(({ bench }) => Array.from({ length: 5 }, () => bench.metering.admit(centRequest(who)))),
      );
      for (const admission of admissions) admission.release();
      expect((await month(first, who, "2026-12")).quotaCostNanoUsd).toBe(0.3e9);
      expect((await first.ledger.statement(wallet(who))).debt).toBe(0);
      const { count } = (await db.get<{ count: number }>(
        "SELECT COUNT(*) AS count FROM ledger_movements WHERE kind = 'repayment'",
      ))!;
      expect(count).toBe(1);
      expect((await verifyLedger(db)).problems).toEqual([]);
    } finally {
      for (const part of parts) {
        await part.bench.close();
        await part.db.close();
        await part.drop();
      }
      await drop();
    }
  });

  test("of a higher tier pays at once, and one without limits pays all", () =>
    withBench(fresh, async (bench) => {
      const who = payer();
      await drainQuota(bench, who);
      await bench.topup(wallet(who), 1);
      await overrun(bench, who, 5_001);
      expect((await refusal(bench, { ...who, tier: "pro" })).message).toContain("You owe 3100 points");
      await spend(bench, { ...who, tier: "enterprise" });
      expect((await bench.ledger.statement(wallet(who))).debt).toBe(0);
    }));
});

describe("a known debt", () => {
  onEachDatabase("whose payment fails", (fresh) => {
    test("stays in force: a database that is away does not let its debtor through", () =>
      withBench(fresh, async (bench, clock) => {
        const who = payer();
        await drainQuota(bench, who);
        await bench.topup(wallet(who), 1);
        await overrun(bench, who, 31);
        clock.jump(DECEMBER - clock.nowMs);
        const { ledger } = bench;
        const transaction = ledger.transaction.bind(ledger);
        ledger.transaction = () => Promise.reject(new Error("connection lost"));
        expect((await refusal(bench, who)).message).toContain("You owe 30 points");
        ledger.transaction = transaction;
        clock.advance(2_000);
        await spend(bench, who);
      }));
  });
});
