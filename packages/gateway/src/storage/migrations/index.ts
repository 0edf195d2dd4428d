import type { Migration } from "../migrate.ts";
import { accounts } from "./001-accounts.ts";
import { conversations } from "./002-conversations.ts";
import { groups } from "./004-groups.ts";
import { ledger } from "./005-ledger.ts";

/** In order of application; a released migration is never edited, only followed by another. */
export const migrations: readonly Migration[] = [accounts, conversations, groups, ledger];
