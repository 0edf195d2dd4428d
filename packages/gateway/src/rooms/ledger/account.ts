import type { Payer } from "../../kernel/payer.ts";
import type { Transaction } from "../../storage/contract.ts";

/** A person's wallet, a group's pool, a debt on one of these, or one of the ledger's own accounts. */
export type AccountType = AccountRef["type"] | "debt" | "system";

/** The account that a payer's requests draw on: the pool for a group key, the personal wallet otherwise. */
export const accountOf = ({ groupId, userId }: Pick<Payer, "groupId" | "userId">): AccountRef =>
  groupId === null ? { type: "user", id: userId } : { type: "group", id: groupId };

/** The account's id in the books; also used as a map key. */
export const accountKey = ({ type, id }: AccountRef): string => `${type}:${id}`;

/** The source of all points; its balance is minus all points in circulation or spent. */
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
  // Hides which row of a sharded account was used.
  return { type, id: type === "system" ? id.split(":")[0]! : id };
}

const REQUEST = "request:";
const DEBT = "debt:";

/** The id of the movement that settles a request, so that there is at most one. */
export const settlementId = (requestId: string): string => REQUEST + requestId;

/** The id of the movement for what a request leaves owed. */
export const debtId = (requestId: string): string => DEBT + requestId;

/** The request that a movement belongs to; null for other kinds of movements. */
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
  /** Debts on the account in points, by user id; null if there are none. */
  debts: Readonly<Record<string, number>> | null;
  /** Grows with every change of the account and its debts, so that older versions are recognised. */
  version: number;
}

export interface BalanceChange extends Balance {
  account: AccountRef;
}

/** One finished request that is to be paid in points. */
export interface Settlement extends DebtRef {
  requestId: string;
  costNanoUsd: bigint;
  multiplierMicros: number;
  atMs: number;
}

/** Points settled, including debts; null if the tier's quota pays because the balance cannot cover it. */
export type Settled = { points: number } | null;

/** The tier's quota, which pays whole requests that points do not cover, while it is not drained. */
export interface QuotaPayer {
  /** Loads what `pays` needs. Called once, and only if something is not covered. */
  load(tx: Transaction): Promise<void>;
  /** Called when the batch is processed from its beginning, possibly a second time. */
  begin(): void;
  /** Called in the order of the items; what it pays reduces what is left for the next ones. */
  pays(item: Settlement): boolean;
}

export interface SettleOptions {
  /** False: none can have been settled before, so skip the look-up. The movement's key still prevents duplicates. */
  mayExist: boolean;
  quota?: QuotaPayer;
  /** Runs before the account that every batch changes is locked. */
  meanwhile?: (settled: readonly Settled[]) => Promise<void>;
}
