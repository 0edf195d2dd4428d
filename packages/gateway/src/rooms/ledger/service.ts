import type { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { LEDGER_CHANGED } from "../../kernel/topics.ts";
import type { Transaction } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import {
  type AccountRef,
  accountKey,
  anySpentRow,
  type Balance,
  type BalanceChange,
  type DebtRef,
  debtKey,
  ISSUED,
  QUOTA,
  requestOf,
  type Settled,
  type Settlement,
  type SettleOptions,
  SPENT,
  splitAccountId,
} from "./account.ts";
import { BalanceCache, toBalance } from "./balance-cache.ts";
import type { StatementResult } from "./methods.ts";
import { entriesOf, settleBatch } from "./settlement.ts";
import {
  type AccountRow,
  type DebtRow,
  type MovementKind,
  type MovementRow,
  NO_COST,
  type StatementRow,
  store,
} from "./store.ts";

const RECENT_ENTRIES = 50;

export interface LedgerOptions extends Needs<"db" | "bus" | "clock" | "ids"> {
  pointsPerUsd: number;
}

export interface PointsOrder {
  points: number;
  note: string | null;
  /** Null: the service itself. */
  actor: string | null;
}

export type Statement = z.input<typeof StatementResult>;

/** The books: every change of a balance in the service happens here, as a movement with two entries. */
export class Ledger {
  readonly balances: BalanceCache;
  readonly #spent: string;
  readonly #changes = new WeakMap<Transaction, Map<string, BalanceChange>>();

  constructor(readonly options: LedgerOptions) {
    this.#spent = options.db.dialect === "postgres" ? anySpentRow() : SPENT;
    this.balances = new BalanceCache(options);
  }

  balance(account: AccountRef): Promise<Balance> {
    return Promise.resolve(this.balances.peek(account) ?? this.balances.load(account));
  }

  /** Runs `work` in its own transaction and publishes the balances that it changed. */
  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    let used: Transaction | undefined;
    const result = await this.options.db.transaction((tx) => {
      used = tx;
      return work(tx);
    });
    if (used) this.publish(this.takeChanges(used));
    return result;
  }

  /**
   * Takes the points of finished requests, each exactly once per request id: a repeated id changes nothing
   * and gets the earlier answer. Runs inside the caller's transaction; after its commit the caller publishes
   * what `takeChanges` has of it. Several requests of one account may be in one batch. Answers come
   * in the order of the items. A request that was not covered leaves no trace here, so the caller's own key
   * (the usage row) is what keeps a replay from settling it later.
   *
   * If neither the account nor the quota covers a request, the account goes to zero and the rest becomes a debt of the
   * user on that account. If the account is closed, the user's own wallet stands in for it.
   *
   * Call it once a transaction: accounts are locked in one order, which keeps two batches from waiting for
   * each other.
   */
  async settleBatch(
    tx: Transaction,
    items: readonly Settlement[],
    options: SettleOptions = { mayExist: true },
  ): Promise<Settled[]> {
    if (items.length === 0) {
      await options.meanwhile?.([]);
      return [];
    }
    const { pointsPerUsd } = this.options;
    const spent = this.#spent;
    const { settled, changed } = await settleBatch(tx, items, { ...options, pointsPerUsd, spent });
    await this.#changed(tx, changed);
    return settled;
  }

  /** The balances that `tx` changed, to be published after its commit, possibly by another thread. */
  takeChanges(tx: Transaction): BalanceChange[] {
    const changes = [...(this.#changes.get(tx)?.values() ?? [])];
    this.#changes.delete(tx);
    return changes;
  }

  publish(changes: readonly BalanceChange[]): void {
    for (const change of changes) this.options.bus.publish(LEDGER_CHANGED, JSON.stringify(change));
  }

  /** Marks accounts as changed by `tx`, so that their balances are published. */
  async noteBalances(tx: Transaction, accounts: readonly AccountRef[]): Promise<void> {
    const rows: AccountRow[] = [];
    for (const id of new Set(accounts.map(accountKey))) {
      const row = await store.account(tx, id);
      if (row) rows.push(row);
    }
    await this.#changed(tx, rows);
  }

  /** Issues new points to the account, which pay its debts first, and returns its new balance. */
  async topup(tx: Transaction, account: AccountRef, order: PointsOrder): Promise<number> {
    await store.openAccount(tx, accountKey(account), account.type);
    const moved = await this.#move(tx, { kind: "topup", from: ISSUED, to: accountKey(account), order });
    if (!moved) throw new Error("ledger: issuing points was refused");
    return (await this.#repay(tx, moved.to)).balance;
  }

  /** Moves points from one account to another, whose debts they pay first; null when the first cannot cover them. */
  async allocate(
    tx: Transaction,
    { from, to, order }: { from: AccountRef; to: AccountRef; order: PointsOrder },
  ): Promise<{ fromBalance: number; toBalance: number } | null> {
    await store.openAccount(tx, accountKey(to), to.type);
    const moved = await this.#move(tx, {
      kind: "allocation",
      from: accountKey(from),
      to: accountKey(to),
      order,
    });
    if (!moved) return null;
    return { fromBalance: moved.from.balance, toBalance: (await this.#repay(tx, moved.to)).balance };
  }

  /** Pays the account's debts from its balance, one by one; returns the updated account. */
  async #repay(tx: Transaction, account: AccountRow): Promise<AccountRow> {
    let left = account;
    if (left.debt_entries === 0) return left;
    for (const debt of await store.debtsOn(tx, [account.id])) {
      const points = Math.min(debt.points, left.balance);
      if (points === 0) break;
      left = await this.#pay(tx, { from: account.id, debt, points });
    }
    return left;
  }

  /** Pays part of a debt from `from`; returns the account on which it was owed. */
  async #pay(tx: Transaction, { from, debt, points }: { from: string; debt: DebtRow; points: number }) {
    const order = { points, note: null, actor: null };
    const moved = await this.#move(tx, { kind: "repayment", from, to: debt.id, order });
    if (!moved) throw new Error(`ledger: ${from} could not pay ${debt.id}`);
    const owing = await store.countDebtEntry(tx, debt.debt_of);
    await this.#changed(tx, [owing]);
    return owing;
  }

  /** The tier's quota pays what it can of the user's debt on the account; the caller counts the points as quota use. */
  async payFromQuota(
    tx: Transaction,
    { account, userId }: DebtRef,
    /** The most that the quota may pay. Called under the account's lock, and only if there is a debt. */
    pointsMax: () => Promise<number>,
  ): Promise<number> {
    const id = accountKey(account);
    await store.lockAccounts(tx, [id]);
    const debt = (await store.debtsOn(tx, [id])).find(({ debtor_id }) => debtor_id === userId);
    const points = debt ? Math.min(debt.points, await pointsMax()) : 0;
    if (debt && points > 0) await this.#pay(tx, { from: QUOTA, debt, points });
    return points;
  }

  /** Returns the rest to the issuer and closes the account for good. Members' debts on it become their own. */
  async close(tx: Transaction, account: AccountRef, order: Omit<PointsOrder, "points">): Promise<void> {
    const id = accountKey(account);
    const row = (await store.lockAccounts(tx, [id])).get(id);
    if (!row) return;
    for (const debt of await store.debtsOn(tx, [id])) await this.#takeOver(tx, debt, order);
    if (row.balance > 0)
      await this.#move(tx, {
        kind: "return",
        from: id,
        to: ISSUED,
        order: { ...order, points: row.balance },
      });
    await store.closeAccount(tx, id, isoTime(this.options.clock.now()));
  }

  /** Moves a debt from the account on which it is owed to the debtor's own wallet, which pays what it can. */
  async #takeOver(tx: Transaction, debt: DebtRow, { note, actor }: Omit<PointsOrder, "points">) {
    const wallet: AccountRef = { type: "user", id: debt.debtor_id };
    const own = { account: wallet, userId: debt.debtor_id };
    const walletId = accountKey(wallet);
    await store.openAccount(tx, walletId, "user");
    if (!(await store.lockAccounts(tx, [walletId])).has(walletId))
      throw new Error(`ledger: the wallet ${walletId} is closed and cannot take over a debt`);
    await store.openDebt(tx, own);
    const order = { points: debt.points, note, actor };
    await this.#move(tx, { kind: "takeover", from: debtKey(own), to: debt.id, order });
    const pool = await store.countDebtEntry(tx, debt.debt_of);
    const owing = await store.countDebtEntry(tx, walletId);
    await this.#changed(tx, [pool, owing]);
    await this.#repay(tx, owing);
  }

  /** Refuses to reopen a closed account, whose history must not pass to someone else. */
  async refuseClosed(tx: Transaction, account: AccountRef): Promise<void> {
    const row = await store.account(tx, accountKey(account));
    if (row?.closed_at)
      fail("conflict", `The id ${account.id} was used before and is closed; choose another one`);
  }

  /** Null: the platform's own account; minus its balance is everything issued and not returned. */
  async statement(account: AccountRef | null): Promise<Statement> {
    const { db } = this.options;
    const accountId = account ? accountKey(account) : ISSUED;
    const rows = await store.recentEntries(db, accountId, RECENT_ENTRIES);
    const debts = await store.debtsOn(db, [accountId]);
    const debtRows = await store.recentDebtEntries(db, accountId, RECENT_ENTRIES);
    return {
      // Take the balance from the newest entry, so that it agrees with the entries while points move.
      balance: rows[0]?.balance_after ?? 0,
      entries: rows.map((row) => toEntry(row, accountId)),
      debt: debts.reduce((sum, { points }) => sum + points, 0),
      debts: debts.map(({ debtor_id, points }) => ({ user_id: debtor_id, points })),
      debt_entries: debtRows.map(({ account_id, debtor_id, ...row }) => ({
        ...toEntry(row, account_id),
        user_id: debtor_id,
      })),
    };
  }

  async debtsOf(userId: string): Promise<{ account: AccountRef; points: number }[]> {
    const rows = await store.debtsOf(this.options.db, userId);
    return rows.map(({ debt_of, points }) => ({ account: splitAccountId(debt_of) as AccountRef, points }));
  }

  /** Moves points, whole or not at all; null when `from` cannot cover them. Locks in the order of all transactions. */
  async #move(
    tx: Transaction,
    { kind, from, to, order }: { kind: MovementKind; from: string; to: string; order: PointsOrder },
  ): Promise<{ from: AccountRow; to: AccountRow } | null> {
    const { points, note, actor } = order;
    const locked = await store.lockAccounts(tx, [from, to].filter(holdsPoints));
    if (holdsPoints(from) && (locked.get(from)?.balance ?? 0) < points) return null;

    const taken = await store.post(tx, { id: from, points: -points, entryCount: 1 });
    const given = await store.post(tx, { id: to, points, entryCount: 1 });
    if (!taken || !given)
      fail("conflict", "The account is closed, or would hold more points than can be counted exactly");
    const { ids, clock } = this.options;
    const movement: MovementRow = {
      id: ids.uuid(),
      kind,
      from_account_id: from,
      to_account_id: to,
      points,
      ...NO_COST,
      note,
      actor,
      created_at: isoTime(clock.now()),
    };
    await store.insertMovements(tx, [movement]);
    await store.insertEntries(tx, [...entriesOf(taken, [movement]), ...entriesOf(given, [movement])]);
    await this.#changed(tx, [taken, given]);
    return { from: taken, to: given };
  }

  /** Records the new balances, which are published once `tx` is committed. */
  async #changed(tx: Transaction, rows: readonly AccountRow[]): Promise<void> {
    const changes = this.#changes.get(tx) ?? new Map<string, BalanceChange>();
    this.#changes.set(tx, changes);
    // Skip the look-up for the many accounts that never had a debt.
    const owing = rows.filter(({ debt_entries }) => debt_entries > 0).map(({ id }) => id);
    const debts = owing.length > 0 ? await store.debtsOn(tx, owing) : [];
    for (const row of rows) {
      const { type, id } = splitAccountId(row.id);
      if (type !== "user" && type !== "group") continue;
      const own = debts.filter(({ debt_of }) => debt_of === row.id);
      changes.set(row.id, { account: { type, id }, ...toBalance(row, own) });
    }
  }
}

/** Wallets and pools cannot go below zero; debts and the ledger's own accounts may. */
const holdsPoints = (id: string) => id.startsWith("user:") || id.startsWith("group:");

function toEntry(row: StatementRow, accountId: string): Statement["entries"][number] {
  const { movement_id, from_account_id, to_account_id, ...rest } = row;
  const counterparty = splitAccountId(from_account_id === accountId ? to_account_id : from_account_id);
  return { ...rest, counterparty, request_id: requestOf(movement_id) };
}
