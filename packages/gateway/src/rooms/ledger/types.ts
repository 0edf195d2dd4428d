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
