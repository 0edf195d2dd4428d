import { NO_LIMIT, type Quantity, type Spent } from "../../bus/contract.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import type { Balance } from "../ledger/index.ts";
import { NANO_PER_USD } from "../usage/for-thread.ts";

/** A billionth of a point, so that the cost of any request is a whole number. */
export const NANO_PER_POINT = 1e9;

/** The price of a request in nano-points, not rounded. */
export const exactNanoPoints = (
  costNanoUsd: number,
  multiplierMicros: number,
  pointsPerUsd: number,
): number => costNanoUsd * pointsPerUsd * (multiplierMicros / MULTIPLIER_ONE);

/** The same rounded up: a reservation may be too large, never too small. */
export const nanoPoints = (costNanoUsd: number, multiplierMicros: number, pointsPerUsd: number): number =>
  // A multiplier's floating-point error can land just above a whole number; that must not round up.
  Math.ceil(exactNanoPoints(costNanoUsd, multiplierMicros, pointsPerUsd) - 0.001);

/** By how many output tokens the request that uses up a quota may exceed it. */
export const TOKENS_BEYOND_QUOTA = 1_024;

export const POINTS_LIMIT: Quantity = { money: 0, tokens: NO_LIMIT };
export const NOTHING: Quantity = { money: 0, tokens: 0 };

/** A tier's limits in nano-dollars and tokens; null if it has none. */
export function limitOf({ monthly_usd_quota: usd, monthly_token_quota: tokens }: Tier): Quantity | null {
  if (usd === null && tokens === null) return null;
  return {
    money: usd === null ? NO_LIMIT : Math.ceil(usd * NANO_PER_USD),
    tokens: tokens ?? NO_LIMIT,
  };
}

/** Nano-dollars of a quota that may pay debts: the smaller rest of the user's month and the keys' month. */
export function leftForDebt(limit: Quantity | null, used: { all: Quantity; byKeys: Quantity }): number {
  if (limit === null) return NO_LIMIT;
  const { all, byKeys } = used;
  if (Math.max(all.tokens, byKeys.tokens) >= limit.tokens) return 0;
  return Math.max(0, limit.money - Math.max(all.money, byKeys.money));
}

/** A balance is what remains, so it counts as negative use of a limit of 0. */
export const spentPoints = ({ balance, version }: Pick<Balance, "balance" | "version">): Spent => ({
  money: -balance * NANO_PER_POINT,
  tokens: 0,
  version,
});

export const negative = ({ money, tokens }: Quantity): Quantity => ({ money: -money, tokens: -tokens });
