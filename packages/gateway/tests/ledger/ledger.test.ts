import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { NANO_PER_POINT, onLedger, pool, settlement, wallet } from "./support.ts";

onEachDatabase("the ledger", (fresh) => {
  const onFresh = (
    work: (bench: ReturnType<typeof onLedger>, db: Parameters<typeof onLedger>[0]) => Promise<void>,
  ) =>
    withDatabase(fresh, async (db) => {
      await work(onLedger(db), db);
      expect((await verifyLedger(db)).problems).toEqual([]);
    });

  test("1,000 concurrent settlements on a pool that covers 10 take points exactly 10 times", () =>
    onFresh(async ({ topup, settle, balance }) => {
      const account = pool();
      await topup(account, 10);
      const settled = await Promise.all(
        Array.from({ length: 1_000 }, () => settle({ account, costNanoUsd: NANO_PER_POINT })),
      );
      expect(settled.flat().filter((one) => one !== null)).toEqual(Array(10).fill({ points: 1 }));
      expect(await balance(account)).toBe(0);
    }));

  test("one request id takes points once, however often and however concurrently it comes", () =>
    onFresh(async ({ topup, settle, balance }) => {
      const account = wallet();
      await topup(account, 100);
      const item = settlement({ account, costNanoUsd: 3n * NANO_PER_POINT });
      const answers = await Promise.all(Array.from({ length: 20 }, () => settle(item, item)));
      expect(answers.flat()).toEqual(Array(40).fill({ points: 3 }));
      expect(await balance(account)).toBe(97);
    }));

  test("a settlement of no points is recorded too: a replay does not add to the remainder", () =>
    onFresh(async ({ topup, settle, balance }) => {
      const account = wallet();
      await topup(account, 10);
      const item = settlement({ account, costNanoUsd: (NANO_PER_POINT * 4n) / 10n });
      for (let replay = 0; replay < 5; replay++) expect(await settle(item)).toEqual([{ points: 0 }]);
      expect(await balance(account)).toBe(10);
      expect(await settle({ account, costNanoUsd: (NANO_PER_POINT * 4n) / 10n })).toEqual([{ points: 1 }]);
    }));

  test("several requests of one account in one batch are charged one after the other", () =>
    onFresh(async ({ topup, settle, ledger }) => {
      const [first, second] = [pool(), wallet()];
      await topup(first, 5);
      await topup(second, 1);
      const points = (n: bigint) => n * NANO_PER_POINT;
      expect(
        await settle(
          { account: first, costNanoUsd: points(3n) },
          { account: second, costNanoUsd: points(1n) },
          { account: first, costNanoUsd: points(3n) },
          { account: first, costNanoUsd: points(2n) },
          { account: second, costNanoUsd: points(1n) },
          { account: wallet(), costNanoUsd: points(1n) },
        ),
      ).toEqual([{ points: 3 }, { points: 1 }, null, { points: 2 }, null, null]);
      const { balance, entries } = await ledger.statement(first);
      expect(balance).toBe(0);
      expect(
        entries.map(({ seq, kind, points, balance_after }) => [seq, kind, points, balance_after]),
      ).toEqual([
        [3, "settlement", -2, 0],
        [2, "settlement", -3, 2],
        [1, "topup", 5, 5],
      ]);
      expect(entries[0]!.counterparty).toEqual({ type: "system", id: "spent" });
    }));

  test("a batch of many requests on many accounts settles whole", () =>
    onFresh(async ({ topup, settle, balance }) => {
      const accounts = Array.from({ length: 23 }, pool);
      for (const account of accounts) await topup(account, 50);
      const items = Array.from({ length: 300 }, (_, n) => ({ account: accounts[n % accounts.length]! }));
      expect((await settle(...items)).filter((one) => one?.points === 1)).toHaveLength(300);
      expect(await balance(accounts[0]!)).toBe(50 - Math.ceil(300 / 23));
    }));

  test("a member's multiplier scales the charge", () =>
    onFresh(async ({ topup, settle }) => {
      const account = pool();
      await topup(account, 100);
      expect(
        await settle(
          { account, costNanoUsd: 2n * NANO_PER_POINT, multiplierMicros: 1_500_000 },
          { account, costNanoUsd: 4n * NANO_PER_POINT, multiplierMicros: 250_000 },
        ),
      ).toEqual([{ points: 3 }, { points: 1 }]);
    }));

  test("a transaction that fails leaves no trace, and no one hears of it", () =>
    onFresh(async ({ topup, ledger, balance, settle }) => {
      const account = wallet();
      await topup(account, 10);
      const item = settlement({ account });
      const failing = ledger.transaction(async (tx) => {
        await ledger.settleBatch(tx, [item]);
        throw new Error("the process dies here");
      });
      await expect(failing).rejects.toThrow("the process dies here");
      expect(await balance(account)).toBe(10);
      expect(ledger.balances.peek(account)).toMatchObject({ balance: 10 });
      expect(await settle(item)).toEqual([{ points: 1 }]);
    }));

  test("two first credits of one wallet at once make one wallet", () =>
    onFresh(async ({ topup, balance, ledger }) => {
      const account = wallet();
      await Promise.all(Array.from({ length: 12 }, () => topup(account, 5)));
      expect(await balance(account)).toBe(60);
      expect((await ledger.statement(null)).balance).toBe(-60);
    }));

  test("opposite allocations and batches at once neither block each other nor lose a point", () =>
    onFresh(async ({ topup, settle, ledger, balance }) => {
      const [left, right] = [pool(), pool()];
      await topup(left, 500);
      await topup(right, 500);
      const order = { points: 3, note: null, actor: "test" };
      const work = Array.from({ length: 60 }, (_, n) => {
        if (n % 3 === 0) return settle({ account: right }, { account: left });
        const [from, to] = n % 3 === 1 ? [left, right] : [right, left];
        return ledger.transaction((tx) => ledger.allocate(tx, { from, to, order }));
      });
      await Promise.all(work);
      expect((await balance(left)) + (await balance(right))).toBe(1_000 - 40);
    }));

  test("an allocation beyond the pool is refused whole", () =>
    onFresh(async ({ topup, ledger, balance }) => {
      const [from, to] = [pool(), wallet()];
      await topup(from, 9);
      const allocate = (points: number) =>
        ledger.transaction((tx) =>
          ledger.allocate(tx, { from, to, order: { points, note: "pay day", actor: "test" } }),
        );
      expect(await allocate(10)).toBeNull();
      expect([await balance(from), await balance(to)]).toEqual([9, 0]);
      expect(await allocate(9)).toEqual({ fromBalance: 0, toBalance: 9 });
    }));

  test("a closed account returns its points, takes no more and pays no more", () =>
    onFresh(async ({ topup, settle, ledger, balance }) => {
      const account = pool();
      await topup(account, 30);
      await settle({ account });
      const close = () =>
        ledger.transaction((tx) => ledger.close(tx, account, { note: "over", actor: "test" }));
      await close();
      await close();
      expect(await balance(account)).toBe(0);
      expect((await ledger.statement(null)).balance).toBe(-1);
      expect(await settle({ account })).toEqual([null]);
      await expect(topup(account, 1)).rejects.toThrow("closed");
    }));

  test("a balance beyond the exact integers is refused", () =>
    onFresh(async ({ topup, balance }) => {
      const account = pool();
      await topup(account, Number.MAX_SAFE_INTEGER - 5);
      await expect(topup(account, 6)).rejects.toThrow("more points than can be counted");
      expect(await balance(account)).toBe(Number.MAX_SAFE_INTEGER - 5);
    }));
});
