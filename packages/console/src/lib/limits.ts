import { compact, count, money } from "./format.ts";
import type { Plan } from "./records.ts";

/** From this share on a limit is near. */
const NEAR_SHARE = 0.8;

/** How much of a limit is used. */
export interface LimitUse {
  share: number;
  /** In its own unit: "90.0k of 100k tokens". */
  words: string;
}

interface Measured {
  used: number;
  limit: number | null;
  inWords(value: number): string;
  unit?: string;
}

function usedOf({ used, limit, inWords, unit = "" }: Measured): LimitUse | null {
  if (limit === null) return null;
  return { share: limit > 0 ? used / limit : 1, words: `${inWords(used)} of ${inWords(limit)}${unit}` };
}

const tierOf = ({ tiers, current_tier }: Plan) => tiers.find(({ name }) => name === current_tier);

/** What is used of the month's quotas; null: unlimited. */
export function monthlyLimits(plan: Plan): { usd: LimitUse | null; tokens: LimitUse | null } {
  const { quota_cost_usd, quota_tokens } = plan.usage;
  const { monthly_usd_quota = null, monthly_token_quota = null } = tierOf(plan) ?? {};
  return {
    usd: usedOf({ used: quota_cost_usd, limit: monthly_usd_quota, inWords: money }),
    tokens: usedOf({ used: quota_tokens, limit: monthly_token_quota, inWords: compact, unit: " tokens" }),
  };
}

/**
 * The limit that is reached first; null: there is none in a month. How fast the busiest key is matters only when it is
 * about to be refused: a minute later it is over.
 */
export function tightestLimit(plan: Plan, requestsPerMinute = 0): LimitUse | null {
  const rate = usedOf({
    used: requestsPerMinute,
    limit: tierOf(plan)?.rpm ?? null,
    inWords: count,
    unit: " requests/min",
  });
  const known = [...Object.values(monthlyLimits(plan)), rate && rate.share >= NEAR_SHARE ? rate : null];
  return known.filter((use) => use !== null).toSorted((one, other) => other.share - one.share)[0] ?? null;
}

export const limitTone = (share: number): "warn" | "bad" | undefined =>
  share >= 1 ? "bad" : share >= NEAR_SHARE ? "warn" : undefined;
