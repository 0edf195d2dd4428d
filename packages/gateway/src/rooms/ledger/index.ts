export { accountKey, accountOf, type DebtRef } from "./account.ts";
export type { Balances } from "./balance-cache.ts";
export * as methods from "./methods.ts";
export { StatementResult } from "./methods.ts";
export { Ledger, type LedgerOptions, type PointsOrder, type Statement } from "./service.ts";
export type {
  AccountRef,
  Balance,
  BalanceChange,
  QuotaPayer,
  Settled,
  Settlement,
} from "./types.ts";
export { type LedgerReport, verifyLedger } from "./verify.ts";
