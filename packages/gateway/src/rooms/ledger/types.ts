import type { Transaction } from "../../storage/contract.ts";

/** A personal wallet or a group's pool. */
export interface AccountRef {
  type: "user" | "group";
  /** The user's or the group's id. */
  id: string;
}

/** What an account holds, as far as this process knows. */
export interface Balance {
  balance: number;
  /** Whether points were ever put in: an empty account that had some is "drained", another one "never used". */
  everCredited: boolean;
  /** Grows with every change of the account, so an older one can be told. */
  version: number;
}

/** Message of `LEDGER_CHANGED`. */
export interface BalanceChange extends Balance {
  account: AccountRef;
}

/** One finished request that is to be paid in points. */
export interface Settlement {
  account: AccountRef;
  requestId: string;
  costNanoUsd: bigint;
  /** The member's multiplier in millionths. */
  multiplierMicros: number;
  /** When the request finished, RFC 3339. */
  now: string;
  note?: string;
}

/** The points taken; null when the balance cannot cover it, then nothing changed and the tier quota pays. */
export type Settled = { points: number } | null;

export interface Settling {
  /**
   * Takes the points of finished requests, each exactly once per request id: a repeated id changes nothing
   * and gets the earlier answer. Runs inside the caller's transaction; after its commit the caller passes
   * the same transaction to `committed`. Several requests of one account may be in one batch. Answers come
   * in the order of the items. A request that was not covered leaves no trace here, so the caller's own key
   * (the usage row) is what keeps a replay from settling it later.
   *
   * Call it once a transaction: accounts are locked in one order, which keeps two batches from waiting for
   * each other.
   *
   * `mayExist: false` says that none of them can have been settled before, which saves looking for them; were
   * one, its movement's key makes this throw.
   */
  settleBatch(
    tx: Transaction,
    items: readonly Settlement[],
    options?: { mayExist: boolean },
  ): Promise<Settled[]>;
  settle(tx: Transaction, item: Settlement): Promise<Settled>;
  /** Tells every instance the new balances of what `tx` changed. To be called once `tx` is committed. */
  committed(tx: Transaction): void;
}

/** Balances without a database round trip, kept true by `LEDGER_CHANGED`. */
export interface Balances {
  /** Null when the balance is not known here, or has not been confirmed for a while: `load` it then. */
  peek(account: AccountRef): Balance | null;
  load(account: AccountRef): Promise<Balance>;
}
