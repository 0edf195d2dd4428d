export { NO_ID } from "./batch.ts";
export { DAY_MS, MonthNames, nextMonthMs, utcDay, utcMonth } from "./calendar.ts";
export { BUCKET_COUNT, BUCKETS_MS, CACHE_COLUMNS, HOUR_MS, MINUTE_MS, SUM_COLUMNS } from "./grains.ts";
export { LostCacheShare, type LostCaches } from "./lost-caches.ts";
export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export {
  type KeySpend,
  type MonthKey,
  type MonthTotals,
  NANO_PER_USD,
  type RequestRow,
  WHOLE_USER,
} from "./rows.ts";
export { Usage, type UsageOptions } from "./service.ts";
export { columnsOf, type MonthQuota, type UsageStore, type WrittenSums } from "./store.ts";
