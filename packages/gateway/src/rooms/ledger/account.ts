import type { Payer } from "../../kernel/payer.ts";
import type { AccountRef } from "./types.ts";

/** Whose account it is: a person's, a group's, or the ledger's own. */
export type AccountType = AccountRef["type"] | "system";

/** The account that a payer's requests draw on: the pool for a group key, the personal wallet otherwise. */
export const accountOf = ({ groupId, userId }: Pick<Payer, "groupId" | "userId">): AccountRef =>
  groupId === null ? { type: "user", id: userId } : { type: "group", id: groupId };

/** The account's id in the books, also what stands for it in maps. */
export const accountKey = ({ type, id }: AccountRef): string => `${type}:${id}`;

/** Where all points come from: its balance is minus what is in circulation or spent. */
export const ISSUED = "system:issued";
/** Where the points of settled requests go. */
export const SPENT = "system:spent";

/** An account id of the books in its two parts. */
export function splitAccountId(accountId: string): { type: AccountType; id: string } {
  const colon = accountId.indexOf(":");
  return { type: accountId.slice(0, colon) as AccountType, id: accountId.slice(colon + 1) };
}

const REQUEST = "request:";

/** The movement that settles a request has this id, so there is at most one. */
export const settlementId = (requestId: string): string => REQUEST + requestId;

/** The request that a movement settles; null when it is another kind of movement. */
export const requestOf = (movementId: string): string | null =>
  movementId.startsWith(REQUEST) ? movementId.slice(REQUEST.length) : null;
