import { NO_LIMIT, type Quantity, type Spent } from "../../bus/contract.ts";
import type { Tier } from "../billing/index.ts";
import type { Balance } from "../ledger/index.ts";
import { NANO_PER_USD } from "../usage/for-thread.ts";
import { NANO_PER_POINT } from "./points.ts";

/** How far the bound of the request that crosses a quota's line may go beyond what is left, in output tokens. */
export const TOKENS_BEYOND_QUOTA = 1_024;

export const POINTS_LIMIT: Quantity = { money: 0, tokens: NO_LIMIT };
export const NOTHING: Quantity = { money: 0, tokens: 0 };

/** The limits of a tier in nano-dollars and tokens; null when it has none. */
export function limitOf({ monthly_usd_quota: usd, monthly_token_quota: tokens }: Tier): Quantity | null {
  if (usd === null && tokens === null) return null;
  return {
    money: usd === null ? NO_LIMIT : Math.ceil(usd * NANO_PER_USD),
    tokens: tokens ?? NO_LIMIT,
  };
}

/** Nano-dollars of a quota that may pay a debt: what is left for the user and for the user's keys together. */
export function leftForDebt(limit: Quantity | null, used: { all: Quantity; byKeys: Quantity }): number {
  if (limit === null) return NO_LIMIT;
  const { all, byKeys } = used;
  if (Math.max(all.tokens, byKeys.tokens) >= limit.tokens) return 0;
  return Math.max(0, limit.money - Math.max(all.money, byKeys.money));
}

/** Points are what is left, not what is gone: the limit is 0 and the balance counts as negative use. */
export const spentPoints = ({ balance, version }: Pick<Balance, "balance" | "version">): Spent => ({
  money: -balance * NANO_PER_POINT,
  tokens: 0,
  version,
});

export const negative = ({ money, tokens }: Quantity): Quantity => ({ money: -money, tokens: -tokens });
