import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import fc from "fast-check";
import { type AccountRef, accountKey, type Settlement, verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { type Bench, onLedger, POINTS_PER_USD, pool, settlement, wallet } from "./support.ts";

const FEMTO = 10n ** 15n;

/** What an account must hold, reckoned from its whole history rather than from a carried remainder. */
interface Expected {
  balance: number;
  chargedFemto: bigint;
  takenPoints: bigint;
  closed: boolean;
}

/** The ledger in a few lines: a second opinion to compare with. */
class Model {
  readonly accounts: AccountRef[] = [pool(), pool(), wallet(), wallet()];
  readonly expected = new Map<string, Expected>();
  readonly settled = new Map<string, number>();
  /** Accounts that points were ever sent to: others do not exist yet. */
  readonly opened = new Set<string>();

  of(account: AccountRef): Expected {
    const key = accountKey(account);
    const known = this.expected.get(key) ?? { balance: 0, chargedFemto: 0n, takenPoints: 0n, closed: false };
    this.expected.set(key, known);
    return known;
  }

  settle({ account, requestId, costNanoUsd, multiplierMicros }: Settlement): { points: number } | null {
    const before = this.settled.get(requestId);
    if (before !== undefined) return { points: before };
    const state = this.of(account);
    const charged = state.chargedFemto + costNanoUsd * BigInt(POINTS_PER_USD) * BigInt(multiplierMicros);
    const due = charged - state.takenPoints * FEMTO;
    const points = (due * 2n + FEMTO) / (2n * FEMTO);
    const covered = points > 0n ? BigInt(state.balance) >= points : state.balance > 0 || due <= 0n;
    if (!covered || state.closed || !this.opened.has(accountKey(account))) return null;
    state.chargedFemto = charged;
    state.takenPoints += points;
    state.balance -= Number(points);
    this.settled.set(requestId, Number(points));
    return { points: Number(points) };
  }
}

interface Real {
  bench: Bench;
  db: Database;
}

/** After each step: the books are in order, and they say what the model says. */
async function checkBooks(model: Model, { bench, db }: Real): Promise<void> {
  expect((await verifyLedger(db)).problems).toEqual([]);
  for (const account of model.accounts) {
    const { balance } = await bench.ledger.statement(account);
    expect(balance).toBe(model.of(account).balance);
    expect(bench.ledger.balances.peek(account)?.balance ?? balance).toBe(balance);
  }
}

type Step = fc.AsyncCommand<Model, Real>;

const step = (name: string, run: (model: Model, real: Real) => Promise<void>): Step => ({
  check: () => true,
  async run(model, real) {
    await run(model, real);
    await checkBooks(model, real);
  },
  toString: () => name,
});

const topupStep = (index: number, points: number): Step =>
  step(`topup ${index} ${points}`, async (model, { bench }) => {
    const account = model.accounts[index]!;
    const state = model.of(account);
    if (state.closed) {
      await expect(bench.topup(account, points)).rejects.toThrow("closed");
      return;
    }
    state.balance += points;
    model.opened.add(accountKey(account));
    expect(await bench.topup(account, points)).toBe(state.balance);
  });

const allocateStep = (from: number, to: number, points: number): Step =>
  step(`allocate ${from} to ${to} ${points}`, async (model, { bench }) => {
    const [source, target] = [model.accounts[from]!, model.accounts[2 + to]!];
    const moved = await bench.ledger.transaction((tx) =>
      bench.ledger.allocate(tx, { from: source, to: target, order: { points, note: null, actor: "m" } }),
    );
    model.opened.add(accountKey(target));
    if (model.of(source).balance < points) {
      expect(moved).toBeNull();
      return;
    }
    model.of(source).balance -= points;
    model.of(target).balance += points;
    expect(moved).toEqual({ fromBalance: model.of(source).balance, toBalance: model.of(target).balance });
  });

interface Item {
  account: number;
  request: number;
  costNanoUsd: bigint;
  multiplierMicros: number;
}

/** The same batch may come again, as after a crash between the commit and the journal's mark. */
const settleStep = (items: Item[], { crash, replay }: { crash: boolean; replay: boolean }): Step =>
  step(
    `settle ${JSON.stringify(items, (_, v) => (typeof v === "bigint" ? `${v}` : v))} ${crash} ${replay}`,
    async (model, { bench }) => {
      const batch = items.map(({ account, request, ...rest }) =>
        settlement({
          ...rest,
          account: model.accounts[account]!,
          requestId: `${model.accounts[0]!.id}-${request}`,
        }),
      );
      if (crash) {
        const dying = bench.ledger.transaction(async (tx) => {
          await bench.ledger.settleBatch(tx, batch);
          throw new Error("crash");
        });
        await dying.catch((error: Error) => expect(error.message).toBe("crash"));
        return;
      }
      const expected = batch.map((item) => model.settle(item));
      expect(await bench.settle(...batch)).toEqual(expected);
      if (!replay) return;
      // What was not covered leaves no trace, so only the paid part answers the same again.
      const paid = batch.filter((_, index) => expected[index] !== null);
      expect(await bench.settle(...paid)).toEqual(expected.filter((one) => one !== null));
    },
  );

const closeStep = (index: number): Step =>
  step(`close ${index}`, async (model, { bench }) => {
    const account = model.accounts[index]!;
    await bench.ledger.transaction((tx) => bench.ledger.close(tx, account, { note: null, actor: "m" }));
    if (!model.opened.has(accountKey(account))) return;
    model.of(account).balance = 0;
    model.of(account).closed = true;
  });

const item = fc.record({
  account: fc.nat(3),
  request: fc.nat(40),
  costNanoUsd: fc.oneof(fc.bigInt({ min: 0n, max: 3_000_000n }), fc.bigInt({ min: 0n, max: 90_000_000n })),
  multiplierMicros: fc.constantFrom(1_000_000, 333_333, 1_500_000, 1),
});
const flags = fc.record({ crash: fc.boolean(), replay: fc.boolean() });
const commands = fc.commands(
  [
    fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 40 })).map((a) => topupStep(...a)),
    fc.tuple(fc.nat(1), fc.nat(1), fc.integer({ min: 1, max: 30 })).map((a) => allocateStep(...a)),
    fc.tuple(fc.array(item, { minLength: 1, maxLength: 6 }), flags).map((a) => settleStep(...a)),
    fc.tuple(fc.array(item, { minLength: 1, maxLength: 6 }), flags).map((a) => settleStep(...a)),
    fc.nat(1).map((index) => closeStep(index)),
  ],
  { maxCommands: 25 },
);

onEachDatabase("any history of the ledger", (fresh, kind) => {
  const numRuns = kind === "sqlite" ? 120 : 30;

  test("agrees with the model after every step", () =>
    withDatabase(fresh, async (db) => {
      await fc.assert(
        fc.asyncProperty(commands, async (steps) => {
          const real = { bench: onLedger(db), db };
          await fc.asyncModelRun(() => ({ model: new Model(), real }), steps);
        }),
        { numRuns },
      );
    }));

  test("keeps the books in order when everything happens at once", () =>
    withDatabase(fresh, async (db) => {
      const action = fc.oneof(
        fc.record({
          do: fc.constant("topup" as const),
          account: fc.nat(3),
          points: fc.integer({ min: 1, max: 20 }),
        }),
        fc.record({
          do: fc.constant("allocate" as const),
          account: fc.nat(1),
          points: fc.integer({ min: 1, max: 20 }),
        }),
        fc.record({
          do: fc.constant("settle" as const),
          items: fc.array(item, { minLength: 1, maxLength: 5 }),
          crash: fc.boolean(),
        }),
      );
      await fc.assert(
        fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 40 }), async (actions) => {
          const { ledger, topup, settle } = onLedger(db);
          const { accounts } = new Model();
          const paid = new Map<string, Set<number>>();
          const run = async (one: (typeof actions)[number]): Promise<unknown> => {
            if (one.do === "topup") return topup(accounts[one.account]!, one.points);
            if (one.do === "allocate") {
              const order = { points: one.points, note: null, actor: "m" };
              const sides = { from: accounts[one.account]!, to: accounts[2 + one.account]! };
              return ledger.transaction((tx) => ledger.allocate(tx, { ...sides, order }));
            }
            // A request belongs to one account, whoever reports it and however often.
            const batch = one.items.map(({ request, account: _, ...rest }) =>
              settlement({
                ...rest,
                account: accounts[request % 4]!,
                requestId: `${accounts[0]!.id}-${request}`,
              }),
            );
            if (one.crash)
              return ledger
                .transaction(async (tx) => {
                  await ledger.settleBatch(tx, batch);
                  throw new Error("crash");
                })
                .catch((error: Error) => expect(error.message).toBe("crash"));
            const answers = await settle(...batch);
            answers.forEach((answer, index) => {
              const id = batch[index]!.requestId;
              if (answer) paid.set(id, (paid.get(id) ?? new Set()).add(answer.points));
            });
          };
          await Promise.all(actions.map(run));
          expect((await verifyLedger(db)).problems).toEqual([]);
          for (const answers of paid.values()) expect(answers.size).toBe(1);
          for (const account of accounts) {
            const { balance } = await ledger.statement(account);
            expect(ledger.balances.peek(account)?.balance ?? balance).toBe(balance);
          }
        }),
        { numRuns },
      );
    }));
});
