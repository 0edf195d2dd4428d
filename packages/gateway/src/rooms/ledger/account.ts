import type { Payer } from "../../kernel/payer.ts";
import type { AccountRef } from "./types.ts";

/** The account that a payer's requests draw on: the pool for a group key, the personal wallet otherwise. */
export const accountOf = ({ groupId, userId }: Pick<Payer, "groupId" | "userId">): AccountRef =>
  groupId === null ? { type: "user", id: userId } : { type: "group", id: groupId };

/** A text that stands for the account in maps. */
export const accountKey = ({ type, id }: AccountRef): string => `${type}:${id}`;
