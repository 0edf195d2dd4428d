import { expect, test } from "bun:test";
import { limitTone, tightestLimit } from "../src/lib/limits.ts";
import type { Plan } from "../src/lib/records.ts";

const TIERS = [
  { name: "free", monthly_usd_quota: 1, monthly_token_quota: 100_000, rpm: 10 },
  { name: "tokens", monthly_usd_quota: null, monthly_token_quota: 1_000, rpm: 10 },
  { name: "closed", monthly_usd_quota: 0, monthly_token_quota: null, rpm: 10 },
  { name: "enterprise", monthly_usd_quota: null, monthly_token_quota: null, rpm: 1_000 },
];
const planOf = (current_tier: string, quota_cost_usd: number, quota_tokens: number) =>
  ({ tiers: TIERS, current_tier, usage: { quota_cost_usd, quota_tokens } }) as unknown as Plan;

test.each([
  ["free", 0, 0, undefined, "$0.00 of $1.00", 0],
  ["free", 0.5, 40_000, 0, "$0.50 of $1.00", 0.5],
  ["free", 0.5, 90_000, 3, "90.0k of 100k tokens", 0.9],
  ["free", 0.5, 40_000, 7, "$0.50 of $1.00", 0.5],
  ["free", 0.5, 40_000, 9, "9 of 10 requests/min", 0.9],
  ["free", 0.95, 40_000, 9, "$0.95 of $1.00", 0.95],
  // The last request of a quota may end beyond it.
  ["free", 1.25, 0, 0, "$1.25 of $1.00", 1.25],
  ["tokens", 12, 500, 2, "500 of 1.0k tokens", 0.5],
  ["closed", 0, 0, 0, "$0.00 of $0.00", 1],
  ["enterprise", 12, 5_000_000, 850, "850 of 1,000 requests/min", 0.85],
] as const)(
  "%s, $%d and %d tokens, %p requests a minute: %s",
  (tier, usd, tokens, perMinute, words, share) => {
    expect(tightestLimit(planOf(tier, usd, tokens), perMinute)).toEqual({ words, share });
  },
);

test("a tier without quotas is unlimited unless a key is about to be refused", () => {
  for (const perMinute of [undefined, 0, 799])
    expect(tightestLimit(planOf("enterprise", 12, 5_000_000), perMinute)).toBeNull();
});

test("amber from 80 %, red when nothing is left", () => {
  expect([0, 0.79, 0.8, 0.99, 1, 1.2].map(limitTone)).toEqual([
    undefined,
    undefined,
    "warn",
    "warn",
    "bad",
    "bad",
  ]);
});
