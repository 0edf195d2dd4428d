import type { Payer } from "../../kernel/payer.ts";
import type { AccountRef } from "./types.ts";

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
/** The row of this instance, for as long as it runs. */
export function anySpentRow(): string {
  const number = Math.floor(Math.random() * SPENT_ROWS);
  return number === 0 ? SPENT : `${SPENT}:${number}`;
}
/** The source of the points with which a tier's quota pays a debt. */
export const QUOTA = "system:quota";

/** Who owes, and on which wallet or pool. */
export interface DebtRef {
  account: AccountRef;
  userId: string;
}

/** The account of a debt: its balance is minus what is owed. On a pool each member has their own. */
export const debtKey = ({ account, userId }: DebtRef): string =>
  account.type === "user" ? `debt:${accountKey(account)}` : `debt:${accountKey(account)}:${userId}`;

/** An account id of the books in its two parts. */
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
