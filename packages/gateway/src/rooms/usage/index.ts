export { NO_ID } from "./batch.ts";
export { LostCacheShare, type LostCaches } from "./lost-caches.ts";
export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export {
  BUCKET_COUNT,
  BUCKETS_MS,
  CACHE_COLUMNS,
  DAY_MS,
  HOUR_MS,
  type KeySpend,
  MINUTE_MS,
  type MonthKey,
  memberId,
  NANO_PER_USD,
  nextMonthMs,
  type RequestRow,
  SUM_COLUMNS,
  splitByDay,
  summed,
  type Time,
  utcMonth,
  WHOLE_USER,
} from "./rows.ts";
export { Usage } from "./service.ts";
export { columnsOf, type MonthQuota, type UsageStore, type WrittenSums } from "./store.ts";
