import * as accounts from "./accounts/index.ts";
import * as conversations from "./conversations/index.ts";
import * as groups from "./groups/index.ts";
import * as keys from "./keys/index.ts";
import * as ledger from "./ledger/index.ts";
import * as providers from "./providers/index.ts";
import * as system from "./system/index.ts";

/** Every room's surface, one line a room; the registry, the documents and the client's types come from here. */
export const surfaces = [accounts, ledger, groups, keys, providers, conversations, system] as const;
