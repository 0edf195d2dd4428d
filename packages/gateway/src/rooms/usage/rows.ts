import type { RequestLine } from "../../kernel/request-row.ts";

/** Months and days are in UTC, so that daylight saving never makes one longer or shorter. */
export const DAY_MS = 86_400_000;

export const utcDay = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

let lastMonth = { fromMs: 0, belowMs: 0, name: "" };
/** Keeps its last answer, because each request asks for its month several times. */
export function utcMonth(ms: number): string {
  if (!(ms >= lastMonth.fromMs && ms < lastMonth.belowMs))
    lastMonth = { fromMs: monthsBeforeMs(ms, 0), belowMs: nextMonthMs(ms), name: utcDay(ms).slice(0, 7) };
  return lastMonth.name;
}

/** Start of the month that is `count` months before the month of `ms`. */
export function monthsBeforeMs(ms: number, count: number): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - count, 1);
}

export const nextMonthMs = (ms: number): number => monthsBeforeMs(ms, -1);

export const NANO_PER_USD = 1e9;
/** The project under which all of a user's requests are summed. A key's project is never empty. */
export const WHOLE_USER = "";

export interface RequestRow extends RequestLine {
  /** Set when points paid; null when the request counts against the tier's quota. */
  points: number | null;
  accountType: "user" | "group" | null;
}

export interface MonthKey {
  userId: string;
  month: string;
  project: string;
}

export const NO_TOTALS = {
  requests: 0,
  tokens: 0,
  costNanoUsd: 0,
  quotaTokens: 0,
  quotaCostNanoUsd: 0,
  /** The part of the quota that keys used; the rest was used signed in. */
  keyQuotaTokens: 0,
  keyQuotaCostNanoUsd: 0,
};
export type MonthTotals = typeof NO_TOTALS;

/** A member's spending from a pool is summed like a key's, under this id. */
export const memberId = (groupId: string, userId: string): string => `${groupId}/${userId}`;

export interface KeySpend {
  keyId: string;
  month: string;
  monthNanoUsd: number;
  totalNanoUsd: number;
}

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;

/** Requests are summed by minute, hour and day. */
export const GRAINS_MS = [MINUTE_MS, HOUR_MS, DAY_MS] as const;

/** Upper bounds of the buckets of the time histograms; one more bucket has the longer times. */
export const BUCKETS_MS = [
  25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800,
] as const;
export const BUCKET_COUNT = BUCKETS_MS.length + 1;

export function bucketOf(ms: number): number {
  const bucket = BUCKETS_MS.findIndex((bound) => ms <= bound);
  return bucket === -1 ? BUCKETS_MS.length : bucket;
}

export const CACHE_COLUMNS = ["cached_tokens", "cache_write_tokens", "cache_saved_nano_usd"] as const;

/** In the order of `request_sums`: counts, tokens, cost, the two histograms, caches. */
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

export const summed = (columns: readonly string[]): string =>
  columns.map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`).join(", ");

export interface Time {
  fromMs: number;
  belowMs: number;
}

/** The whole days of a period, which daily sums cover, and the rest at its ends. */
export function splitByDay({ fromMs, belowMs }: Time): { days: Time | null; rest: Time[] } {
  const firstDay = Math.ceil(fromMs / DAY_MS) * DAY_MS;
  const endDay = Math.floor(belowMs / DAY_MS) * DAY_MS;
  if (firstDay > endDay) return { days: null, rest: [{ fromMs, belowMs }] };
  const ends = [
    { fromMs, belowMs: firstDay },
    { fromMs: endDay, belowMs },
  ];
  return {
    days: firstDay < endDay ? { fromMs: firstDay, belowMs: endDay } : null,
    rest: ends.filter((end) => end.fromMs < end.belowMs),
  };
}
