/** What the settling thread loads of this room: no schemas of methods, which would take more memory than all else. */
export { accountKey, accountOf } from "./account.ts";
export { Ledger } from "./service.ts";
