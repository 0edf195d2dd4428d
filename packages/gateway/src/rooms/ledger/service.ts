import type { Bus } from "../../bus/contract.ts";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import { LEDGER_CHANGED } from "../../kernel/topics.ts";
import type { Database, Transaction } from "../../storage/contract.ts";
import { type AccountType, accountKey, ISSUED, requestOf, splitAccountId } from "./account.ts";
import { BalanceCache } from "./balance-cache.ts";
import { moveBetween } from "./movement.ts";
import { settleBatch } from "./settlement.ts";
import { type AccountRow, type MovementKind, type StatementRow, store } from "./store.ts";
import type { AccountRef, Balance, BalanceChange, Settled, Settlement, Settling } from "./types.ts";

const RECENT_ENTRIES = 50;

export interface LedgerOptions {
  db: Database;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  pointsPerUsd: number;
}

/** Points that a person moves. */
export interface PointsOrder {
  points: number;
  note: string | null;
  /** Who ordered it: a user id. */
  actor: string;
}

export interface Statement {
  balance: number;
  /** Newest first. */
  entries: {
    seq: number;
    kind: MovementKind;
    points: number;
    balance_after: number;
    counterparty: { type: AccountType; id: string };
    request_id: string | null;
    note: string | null;
    created_at: string;
  }[];
}

/** The books: every change of a balance in the service happens here, as a movement with two entries. */
export class Ledger implements Settling {
  readonly balances: BalanceCache;
  readonly #changes = new WeakMap<Transaction, Map<string, BalanceChange>>();

  constructor(readonly options: LedgerOptions) {
    const { db, bus, clock } = options;
    this.balances = new BalanceCache({
      bus,
      clock,
      read: async (account) => {
        const row = await store.account(db, accountKey(account));
        return {
          balance: row?.balance ?? 0,
          everCredited: row?.ever_credited ?? false,
          version: row?.version ?? 0,
        };
      },
    });
  }

  balance(account: AccountRef): Promise<Balance> {
    return Promise.resolve(this.balances.peek(account) ?? this.balances.load(account));
  }

  /** Runs `work` in a transaction of its own and tells everyone the balances that it changed. */
  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    let used: Transaction | undefined;
    const result = await this.options.db.transaction((tx) => {
      used = tx;
      return work(tx);
    });
    if (used) this.committed(used);
    return result;
  }

  async settleBatch(
    tx: Transaction,
    items: readonly Settlement[],
    { mayExist } = { mayExist: true },
  ): Promise<Settled[]> {
    if (items.length === 0) return [];
    const { pointsPerUsd } = this.options;
    const { settled, changed } = await settleBatch(tx, items, { pointsPerUsd, mayExist });
    for (const account of changed) this.#changed(tx, account);
    return settled;
  }

  async settle(tx: Transaction, item: Settlement): Promise<Settled> {
    const [settled] = await this.settleBatch(tx, [item]);
    return settled ?? null;
  }

  committed(tx: Transaction): void {
    for (const change of this.#changes.get(tx)?.values() ?? [])
      this.options.bus.publish(LEDGER_CHANGED, JSON.stringify(change));
    this.#changes.delete(tx);
  }

  /** Issues new points to the account and returns its new balance. */
  async topup(tx: Transaction, account: AccountRef, order: PointsOrder): Promise<number> {
    await store.openAccount(tx, accountKey(account), account.type);
    const moved = await this.#move(tx, { kind: "topup", from: ISSUED, to: accountKey(account), order });
    if (!moved) throw new Error("ledger: issuing points was refused");
    return moved.to.balance;
  }

  /** Moves points from one account to another; null when the first cannot cover them. */
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
    return moved && { fromBalance: moved.from.balance, toBalance: moved.to.balance };
  }

  /** Gives what is left back to where points come from and closes the account for good. */
  async close(tx: Transaction, account: AccountRef, order: Omit<PointsOrder, "points">): Promise<void> {
    const id = accountKey(account);
    const row = (await store.lockAccounts(tx, [id])).get(id);
    if (!row) return;
    if (row.balance > 0)
      await this.#move(tx, {
        kind: "return",
        from: id,
        to: ISSUED,
        order: { ...order, points: row.balance },
      });
    await store.closeAccount(tx, id, isoTime(this.options.clock.now()));
  }

  /** Refuses an id whose account was closed: its history must not come to someone else. */
  async refuseClosed(tx: Transaction, account: AccountRef): Promise<void> {
    const row = await store.account(tx, accountKey(account));
    if (row?.closed_at)
      fail("conflict", `The id ${account.id} was used before and is closed; choose another one`);
  }

  statement(account: AccountRef): Promise<Statement> {
    return this.#statement(accountKey(account));
  }

  /** The platform's own account: minus its balance is what was ever issued and not returned. */
  issuedStatement(): Promise<Statement> {
    return this.#statement(ISSUED);
  }

  async #statement(accountId: string): Promise<Statement> {
    const { db } = this.options;
    const rows = await store.recentEntries(db, accountId, RECENT_ENTRIES);
    // The newest entry rather than the account's row: so the two cannot disagree while points move.
    return { balance: rows[0]?.balance_after ?? 0, entries: rows.map((row) => toEntry(row, accountId)) };
  }

  async #move(
    tx: Transaction,
    { kind, from, to, order }: { kind: MovementKind; from: string; to: string; order: PointsOrder },
  ): Promise<{ from: AccountRow; to: AccountRow } | null> {
    const moved = await moveBetween(tx, {
      id: this.options.ids.uuid(),
      kind,
      from_account_id: from,
      to_account_id: to,
      points: order.points,
      cost_nano_usd: null,
      multiplier_micros: null,
      exact_points: null,
      exact_femto: null,
      note: order.note,
      actor: order.actor,
      created_at: isoTime(this.options.clock.now()),
    });
    if (moved) for (const account of [moved.from, moved.to]) this.#changed(tx, account);
    return moved;
  }

  #changed(tx: Transaction, { id, type, balance, ever_credited, version }: AccountRow): void {
    if (type === "system") return;
    const changes = this.#changes.get(tx) ?? new Map<string, BalanceChange>();
    this.#changes.set(tx, changes);
    const account: AccountRef = { type, id: splitAccountId(id).id };
    changes.set(id, { account, balance, everCredited: ever_credited, version });
  }
}

function toEntry(row: StatementRow, accountId: string): Statement["entries"][number] {
  const { movement_id, from_account_id, to_account_id, ...rest } = row;
  const counterparty = splitAccountId(from_account_id === accountId ? to_account_id : from_account_id);
  return { ...rest, counterparty, request_id: requestOf(movement_id) };
}
