export { accountKey, accountOf } from "./account.ts";
export type {
  AccountRef,
  Balance,
  BalanceChange,
  Balances,
  Settled,
  Settlement,
  Settling,
} from "./types.ts";
