/** Requests are summed up by minute, hour and day. */
export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;

import { DAY_MS } from "./calendar.ts";
export const GRAINS_MS = [MINUTE_MS, HOUR_MS, DAY_MS] as const;

/** Upper bounds of the buckets that times are counted in; longer ones go to one more. */
export const BUCKETS_MS = [
  25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800,
] as const;
export const BUCKET_COUNT = BUCKETS_MS.length + 1;

export function bucketOf(ms: number): number {
  let bucket = 0;
  while (bucket < BUCKETS_MS.length && ms > BUCKETS_MS[bucket]!) bucket++;
  return bucket;
}

/** What went through the upstreams' caches, and what that saved. */
export const CACHE_COLUMNS = ["cached_tokens", "cache_write_tokens", "cache_saved_nano_usd"] as const;

/** Sums of requests in the order of their columns: counts, tokens, cost, the two histograms, caches. */
export const SUM_COLUMNS: readonly string[] = [
  "requests",
  "prompt_tokens",
  "completion_tokens",
  "cost_nano_usd",
  "unpriced",
  ...Array.from({ length: BUCKET_COUNT }, (_, i) => `first_token_${i}`),
  ...Array.from({ length: BUCKET_COUNT }, (_, i) => `duration_${i}`),
  ...CACHE_COLUMNS,
];
