import type { Transaction } from "../../storage/contract.ts";

/** A personal wallet or a group's pool. */
export interface AccountRef {
  type: "user" | "group";
  id: string;
}

/** What an account holds, as far as this process knows. */
export interface Balance {
  balance: number;
  /** Whether points were ever put in: an empty account that had some is "drained", another one "never used". */
  everCredited: boolean;
  /** What is owed on the account, by user id, in points; null when nothing is. */
  debts: Readonly<Record<string, number>> | null;
  /** Grows with every change of the account and its debts, so that older versions are recognised. */
  version: number;
}

/** Message of `LEDGER_CHANGED`. */
export interface BalanceChange extends Balance {
  account: AccountRef;
}

/** One finished request that is to be paid in points. */
export interface Settlement {
  account: AccountRef;
  /** Who made it, and owes what is not covered. */
  userId: string;
  requestId: string;
  costNanoUsd: bigint;
  /** The member's multiplier in millionths. */
  multiplierMicros: number;
  atMs: number;
  note?: string;
}

/**
 * What was settled in points, those that are owed included; null when the balance cannot cover it and the tier's
 * quota pays, then nothing changed.
 */
export type Settled = { points: number } | null;

/** The tier's quota, which pays whole requests that points do not cover, while it is not drained. */
export interface QuotaPayer {
  /** Reads what it needs; asked once, before `pays`, and only when something is not covered. */
  load(tx: Transaction): Promise<void>;
  /** The batch is processed from its beginning; it may be a second pass. */
  begin(): void;
  /** Called in the order of the items; what it pays counts for those that follow. */
  pays(item: Settlement): boolean;
}

export interface SettleOptions {
  /**
   * False: none of the items can have been settled before, which saves looking for them; were one, its movement's
   * key makes the settlement throw.
   */
  mayExist: boolean;
  /** Without it, the caller handles what points do not cover. */
  quota?: QuotaPayer;
  /** What else the transaction does with the answers, before it locks the account that every batch changes. */
  meanwhile?: (settled: readonly Settled[]) => Promise<void>;
}

export interface Settling {
  /**
   * Takes the points of finished requests, each exactly once per request id: a repeated id changes nothing
   * and gets the earlier answer. Runs inside the caller's transaction; after its commit the caller passes
   * the same transaction to `committed`. Several requests of one account may be in one batch. Answers come
   * in the order of the items. A request that was not covered leaves no trace here, so the caller's own key
   * (the usage row) is what keeps a replay from settling it later.
   *
   * What neither the account nor the quota pays takes the account to zero and leaves the rest as a debt of the
   * user on that account. If the account is closed, the user's own wallet stands in for it.
   *
   * Call it once a transaction: accounts are locked in one order, which keeps two batches from waiting for
   * each other.
   */
  settleBatch(tx: Transaction, items: readonly Settlement[], options?: SettleOptions): Promise<Settled[]>;
  settle(tx: Transaction, item: Settlement): Promise<Settled>;
  /** Publishes the balances that `tx` changed to every instance. Call it once `tx` is committed. */
  committed(tx: Transaction): void;
  /** The same in two steps, for a caller in another thread than the one that publishes. */
  takeChanges(tx: Transaction): BalanceChange[];
  /** Counts these accounts as changed by `tx`, so that their balances are published as they are. */
  noteBalances(tx: Transaction, accounts: readonly AccountRef[]): Promise<void>;
}

/** Balances without a database round trip, kept current by `LEDGER_CHANGED`. */
export interface Balances {
  /** Null when the balance is not known here, or has not been confirmed for a while: `load` it then. */
  peek(account: AccountRef): Balance | null;
  /** The last known balance, confirmed or not; null when there is none. */
  last(account: AccountRef): Balance | null;
  load(account: AccountRef): Promise<Balance>;
}
