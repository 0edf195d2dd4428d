import type { Payer } from "../../kernel/payer.ts";
import type { Transaction } from "../../storage/contract.ts";

/** Whose account it is: a person's, a group's, what is owed on one of these, or the ledger's own. */
export type AccountType = AccountRef["type"] | "debt" | "system";

/** The account that a payer's requests draw on: the pool for a group key, the personal wallet otherwise. */
export const accountOf = ({ groupId, userId }: Pick<Payer, "groupId" | "userId">): AccountRef =>
  groupId === null ? { type: "user", id: userId } : { type: "group", id: groupId };

/** The account's id in the books, also what stands for it in maps. */
export const accountKey = ({ type, id }: AccountRef): string => `${type}:${id}`;

/** Where all points come from: its balance is minus what is in circulation or spent. */
export const ISSUED = "system:issued";
/** Where the points of settled requests go. */
export const SPENT = "system:spent";
/** On Postgres the spent account is sharded into this many rows, one per instance, to avoid lock contention. */
const SPENT_ROWS = 16;
export function anySpentRow(): string {
  const number = Math.floor(Math.random() * SPENT_ROWS);
  return number === 0 ? SPENT : `${SPENT}:${number}`;
}
/** The source of the points with which a tier's quota pays a debt. */
export const QUOTA = "system:quota";

export interface DebtRef {
  account: AccountRef;
  userId: string;
}

/** The account of a debt: its balance is minus what is owed. On a pool each member has their own. */
export const debtKey = ({ account, userId }: DebtRef): string =>
  account.type === "user" ? `debt:${accountKey(account)}` : `debt:${accountKey(account)}:${userId}`;

export function splitAccountId(accountId: string): { type: AccountType; id: string } {
  const colon = accountId.indexOf(":");
  const type = accountId.slice(0, colon) as AccountType;
  const id = accountId.slice(colon + 1);
  // Which of its rows an account of the ledger used is nobody's business.
  return { type, id: type === "system" ? id.split(":")[0]! : id };
}

const REQUEST = "request:";
const DEBT = "debt:";

/** The movement that settles a request has this id, so there is at most one. */
export const settlementId = (requestId: string): string => REQUEST + requestId;

/** The movement of what a request leaves owed has this id. */
export const debtId = (requestId: string): string => DEBT + requestId;

/** The request that a movement settles, or leaves owed; null when it is another kind of movement. */
export function requestOf(movementId: string): string | null {
  const prefix = [REQUEST, DEBT].find((each) => movementId.startsWith(each));
  return prefix === undefined ? null : movementId.slice(prefix.length);
}

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

export interface BalanceChange extends Balance {
  account: AccountRef;
}

/** One finished request that is to be paid in points. */
export interface Settlement {
  account: AccountRef;
  userId: string;
  requestId: string;
  costNanoUsd: bigint;
  multiplierMicros: number;
  atMs: number;
  note?: string;
}

/** Points settled, debts included; null when the balance cannot cover it and the tier's quota pays. */
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
  /** False: none can have been settled before, so none are looked for; the movement's key still forbids it. */
  mayExist: boolean;
  quota?: QuotaPayer;
  /** What else the transaction does with the answers, before it locks the account that every batch changes. */
  meanwhile?: (settled: readonly Settled[]) => Promise<void>;
}
