import type { Usage } from "./service.ts";

export { DAY_MS, MonthNames, nextMonthMs, utcDay, utcMonth } from "./calendar.ts";
export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export {
  type KeySpend,
  type MonthKey,
  type MonthTotals,
  NANO_PER_USD,
  type UsageRow,
  WHOLE_USER,
} from "./rows.ts";
export { Usage, type UsageOptions } from "./service.ts";
export type { MonthQuota, UsageStore, WrittenSums } from "./store.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    usage: Usage;
  }
}
