/** The parts of this room that the settling thread loads. Method schemas would take more memory than all the rest. */
export { accountKey, accountOf } from "./account.ts";
export { Ledger } from "./service.ts";
