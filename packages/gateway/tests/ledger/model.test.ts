import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import fc from "fast-check";
import {
  type AccountRef,
  accountKey,
  type QuotaPayer,
  type Settlement,
  verifyLedger,
} from "../../src/rooms/ledger/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { type Bench, onLedger, POINTS_PER_USD, pool, settlement, wallet } from "./support.ts";

const FEMTO = 10n ** 15n;

/** What an account must hold, reckoned from its whole history rather than from a carried remainder. */
interface Expected {
  balance: number;
  chargedFemto: bigint;
  /** Those that are owed included. */
  takenPoints: bigint;
  closed: boolean;
  /** Points owed on it, by user id. */
  debts: Map<string, number>;
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
    const known = this.expected.get(key) ?? {
      balance: 0,
      chargedFemto: 0n,
      takenPoints: 0n,
      closed: false,
      debts: new Map<string, number>(),
    };
    this.expected.set(key, known);
    return known;
  }

  isOpen(account: AccountRef): boolean {
    return this.opened.has(accountKey(account)) && !this.of(account).closed;
  }

  #due(state: Expected, { costNanoUsd, multiplierMicros }: Settlement) {
    const charged = state.chargedFemto + costNanoUsd * BigInt(POINTS_PER_USD) * BigInt(multiplierMicros);
    const due = charged - state.takenPoints * FEMTO;
    const points = (due * 2n + FEMTO) / (2n * FEMTO);
    const covered = points > 0n ? BigInt(state.balance) >= points : state.balance > 0 || due <= 0n;
    return { charged, points: Number(points), covered };
  }

  settle(item: Settlement, quota: Quota = "unasked"): { points: number } | null {
    const before = this.settled.get(item.requestId);
    if (before !== undefined) return { points: before };
    const { covered } = this.#due(this.of(item.account), item);
    if (this.isOpen(item.account) && covered) return this.#take(item.account, item);
    if (quota !== "drained") return null;
    return this.#take(this.#debited(item), item);
  }

  #take(account: AccountRef, item: Settlement): { points: number } {
    const state = this.of(account);
    const { charged, points } = this.#due(state, item);
    state.chargedFemto = charged;
    state.takenPoints += BigInt(points);
    const taken = Math.min(points, state.balance);
    state.balance -= taken;
    this.owe(account, item.userId, points - taken);
    this.settled.set(item.requestId, points);
    return { points };
  }

  owe(account: AccountRef, userId: string, points: number): void {
    const { debts } = this.of(account);
    const owed = (debts.get(userId) ?? 0) + points;
    if (owed > 0) debts.set(userId, owed);
    else debts.delete(userId);
  }

  /** Points that an account holds pay what is owed on it. */
  repay(account: AccountRef): void {
    const state = this.of(account);
    for (const [userId, owed] of [...state.debts].sort()) {
      const points = Math.min(owed, state.balance);
      state.balance -= points;
      this.owe(account, userId, -points);
    }
  }

  /** The account that a debt is noted on: a new one if there is none, the wallet in place of a closed pool. */
  #debited({ account, userId }: Settlement): AccountRef {
    const debited = this.of(account).closed ? walletOf(userId) : account;
    this.opened.add(accountKey(debited));
    return debited;
  }
}

/** What the tier's quota says to a request that points do not cover: it is not asked, it pays, it has nothing. */
type Quota = "unasked" | "pays" | "drained";
const payerOf = (quota: Quota): QuotaPayer | undefined =>
  quota === "unasked" ? undefined : { load: async () => {}, begin() {}, pays: () => quota === "pays" };
const walletOf = (id: string): AccountRef => ({ type: "user", id });

interface Real {
  bench: Bench;
  db: Database;
}

/** After each step: the books are in order, and they say what the model says. */
async function checkBooks(model: Model, { bench, db }: Real): Promise<void> {
  expect((await verifyLedger(db)).problems).toEqual([]);
  for (const account of model.accounts) {
    const { balance, debt, debts } = await bench.ledger.statement(account);
    const state = model.of(account);
    expect(balance).toBe(state.balance);
    expect(new Map(debts.map(({ user_id, points }) => [user_id, points]))).toEqual(state.debts);
    expect(debt).toBe([...state.debts.values()].reduce((sum, points) => sum + points, 0));
    const known = bench.ledger.balances.peek(account);
    if (!known) continue;
    expect(known.balance).toBe(balance);
    expect(new Map(Object.entries(known.debts ?? {}))).toEqual(state.debts);
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
    model.repay(account);
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
    model.repay(target);
    expect(moved).toEqual({ fromBalance: model.of(source).balance, toBalance: model.of(target).balance });
  });

interface Item {
  account: number;
  /** Which of the two people asks, where the account is a pool. */
  member: number;
  request: number;
  costNanoUsd: bigint;
  multiplierMicros: number;
}

/** The same batch may come again, as after a crash between the commit and the journal's mark. */
const settleStep = (
  items: Item[],
  { crash, replay, quota }: { crash: boolean; replay: boolean; quota: Quota },
): Step =>
  step(
    `settle ${JSON.stringify(items, (_, v) => (typeof v === "bigint" ? `${v}` : v))} ${crash} ${replay} ${quota}`,
    async (model, { bench }) => {
      const { ledger } = bench;
      const batch = items.map(({ account: index, member, request, ...rest }) => {
        const account = model.accounts[index]!;
        const userId = account.type === "user" ? account.id : model.accounts[2 + member]!.id;
        return settlement({ ...rest, account, userId, requestId: `${model.accounts[0]!.id}-${request}` });
      });
      const payer = payerOf(quota);
      const options = { mayExist: true, ...(payer && { quota: payer }) };
      if (crash) {
        const dying = ledger.transaction(async (tx) => {
          await ledger.settleBatch(tx, batch, options);
          throw new Error("crash");
        });
        await dying.catch((error: Error) => expect(error.message).toBe("crash"));
        return;
      }
      const expected = batch.map((item) => model.settle(item, quota));
      expect(await ledger.transaction((tx) => ledger.settleBatch(tx, batch, options))).toEqual(expected);
      if (!replay) return;
      // What was not covered leaves no trace, so only the paid part answers the same again.
      const paid = batch.filter((_, index) => expected[index] !== null);
      expect(await bench.settle(...paid)).toEqual(expected.filter((one) => one !== null));
    },
  );

/** A new month's quota pays a part of a debt. */
const quotaStep = (index: number, member: number, most: number): Step =>
  step(`quota pays ${index} ${member} ${most}`, async (model, { bench }) => {
    const { ledger } = bench;
    const account = model.accounts[index]!;
    const userId = account.type === "user" ? account.id : model.accounts[2 + member]!.id;
    await ledger.transaction(async (tx) => {
      const owed = model.of(account).debts.get(userId) ?? 0;
      const points = await ledger.payFromQuota(tx, { account, userId }, async () => most);
      expect(points).toBe(Math.min(owed, most));
      model.owe(account, userId, -points);
    });
  });

const closeStep = (index: number): Step =>
  step(`close ${index}`, async (model, { bench }) => {
    const account = model.accounts[index]!;
    await bench.ledger.transaction((tx) => bench.ledger.close(tx, account, { note: null, actor: "m" }));
    const state = model.of(account);
    if (!model.isOpen(account)) return;
    state.balance = 0;
    state.closed = true;
    for (const [userId, owed] of [...state.debts].sort()) {
      model.owe(account, userId, -owed);
      model.opened.add(accountKey(walletOf(userId)));
      model.owe(walletOf(userId), userId, owed);
      model.repay(walletOf(userId));
    }
  });

const item = fc.record({
  account: fc.nat(3),
  member: fc.nat(1),
  request: fc.nat(40),
  costNanoUsd: fc.oneof(fc.bigInt({ min: 0n, max: 3_000_000n }), fc.bigInt({ min: 0n, max: 90_000_000n })),
  multiplierMicros: fc.constantFrom(1_000_000, 333_333, 1_500_000, 1),
});
const flags = fc.record({
  crash: fc.boolean(),
  replay: fc.boolean(),
  quota: fc.constantFrom<Quota>("unasked", "pays", "drained", "drained"),
});
const commands = fc.commands(
  [
    fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 40 })).map((a) => topupStep(...a)),
    fc.tuple(fc.nat(1), fc.nat(1), fc.integer({ min: 1, max: 30 })).map((a) => allocateStep(...a)),
    fc.tuple(fc.array(item, { minLength: 1, maxLength: 6 }), flags).map((a) => settleStep(...a)),
    fc.tuple(fc.array(item, { minLength: 1, maxLength: 6 }), flags).map((a) => settleStep(...a)),
    fc.tuple(fc.nat(3), fc.nat(1), fc.integer({ min: 1, max: 20 })).map((a) => quotaStep(...a)),
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
          quota: fc.constantFrom<Quota>("unasked", "drained"),
        }),
        fc.record({ do: fc.constant("close" as const), account: fc.nat(1) }),
        fc.record({ do: fc.constant("quota pays" as const), account: fc.nat(3) }),
      );
      await fc.assert(
        fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 40 }), async (actions) => {
          const { ledger, topup } = onLedger(db);
          const { accounts } = new Model();
          const paid = new Map<string, Set<number>>();
          const run = async (one: (typeof actions)[number]): Promise<unknown> => {
            if (one.do === "topup") return topup(accounts[one.account]!, one.points);
            if (one.do === "allocate") {
              const order = { points: one.points, note: null, actor: "m" };
              const sides = { from: accounts[one.account]!, to: accounts[2 + one.account]! };
              return ledger.transaction((tx) => ledger.allocate(tx, { ...sides, order }));
            }
            if (one.do === "close") {
              const order = { note: null, actor: "m" };
              return ledger.transaction((tx) => ledger.close(tx, accounts[one.account]!, order));
            }
            if (one.do === "quota pays") {
              const debt = { account: accounts[one.account]!, userId: accounts[2 + (one.account % 2)]!.id };
              return ledger.transaction((tx) => ledger.payFromQuota(tx, debt, async () => 10 ** 9));
            }
            // A request belongs to one account, whoever reports it and however often.
            const batch = one.items.map(({ request, account: _, member: __, ...rest }) =>
              settlement({
                ...rest,
                account: accounts[request % 4]!,
                userId: accounts[2 + (request % 2)]!.id,
                requestId: `${accounts[0]!.id}-${request}`,
              }),
            );
            const quota = payerOf(one.quota);
            const options = { mayExist: true, ...(quota && { quota }) };
            if (one.crash)
              return ledger
                .transaction(async (tx) => {
                  await ledger.settleBatch(tx, batch, options);
                  throw new Error("crash");
                })
                .catch((error: Error) => expect(error.message).toBe("crash"));
            const answers = await ledger.transaction((tx) => ledger.settleBatch(tx, batch, options));
            answers.forEach((answer, index) => {
              const id = batch[index]!.requestId;
              if (answer) paid.set(id, (paid.get(id) ?? new Set()).add(answer.points));
            });
          };
          // A pool may be closed by now, and Postgres may undo one of two that wait for each other.
          const refusals = ["closed", "deadlock"];
          await Promise.all(
            actions.map((one) =>
              run(one).catch((error: Error) => {
                if (!refusals.some((words) => error.message.includes(words))) throw error;
              }),
            ),
          );
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
