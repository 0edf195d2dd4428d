export {
  type AccountRef,
  accountKey,
  accountOf,
  type Balance,
  type BalanceChange,
  type DebtRef,
  type QuotaPayer,
  type Settled,
  type Settlement,
} from "./account.ts";
export type { Balances } from "./balance-cache.ts";
export * as methods from "./methods.ts";
export { StatementResult } from "./methods.ts";
export { Ledger, type LedgerOptions, type PointsOrder, type Statement } from "./service.ts";
export { type LedgerReport, verifyLedger } from "./verify.ts";
