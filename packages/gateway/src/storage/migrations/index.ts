import type { Migration } from "../migrate.ts";
import { accounts } from "./001-accounts.ts";
import { conversations } from "./002-conversations.ts";
import { agents } from "./008-agents.ts";

/** In order of application; a released migration is never edited, only followed by another. */
export const migrations: readonly Migration[] = [accounts, conversations, agents];
