import type { Asking, Quantity } from "./contract.ts";

/** Products of fractions may lie a hair above the whole number that they stand for; that is not one more. */
export const HAIR = 0.001;

/** What is reserved for a grant of this many units: whole numbers, so that sums stay exact. */
export const grantedAmount = (
  { fixed, perUnit }: Pick<Asking, "fixed" | "perUnit">,
  units: number,
): Quantity => ({
  money: Math.ceil(fixed.money + units * perUnit.money - HAIR),
  tokens: Math.ceil(fixed.tokens + units * perUnit.tokens - HAIR),
});
