import type { Quantity } from "../../bus/contract.ts";
import type { Billing } from "../billing/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import type { Demand } from "./cover.ts";
import { NOTHING } from "./limits.ts";
import type { AdmitOptions } from "./types.ts";

/** Figures from outside are capped: an absurd or infinite one would spoil every sum. */
export const TOKENS_MAX = 1e9;
export const COST_NANO_USD_MAX = 1e6 * NANO_PER_USD;
export const capped = (value: number, max: number): number =>
  value > 0 ? Math.min(Math.floor(value), max) : 0;
export const nanoUsdOf = (usd: number): number => capped(Math.round(usd * NANO_PER_USD), COST_NANO_USD_MAX);

type Rates = Pick<Billing, "pricing">;

/** The cost that an upstream reports, if plausible: up to ten times the price by tokens, or 100 USD without one. */
export function believedCost(reportedUsd: number | undefined, byTokensNanoUsd: number | null): number | null {
  if (reportedUsd === undefined || reportedUsd < 0) return null;
  const most = byTokensNanoUsd === null ? 100 * NANO_PER_USD : byTokensNanoUsd * 10;
  const nanoUsd = Math.round(reportedUsd * NANO_PER_USD);
  return nanoUsd <= most ? nanoUsd : null;
}

type Held = Pick<AdmitOptions, "model" | "isOwn" | "isBatch" | "bound">;
/** The highest rates that the prompt and its answer can have; null if the model has no price. */
export function heldRates(billing: Rates, { model, isOwn, isBatch, bound }: Held, promptTokens: number) {
  const mentions = (word: RegExp) => !("mentions" in bound) || bound.mentions!(word);
  return billing.pricing.dearestRatesOf(model, { promptTokens, mentions, isOwn, isBatch });
}

/** What is held for the prompt, and for each token of the answer. */
export function heldFor(
  billing: Rates,
  held: Held,
  promptTokens: number,
): { fixed: Quantity; perToken: Quantity } {
  const { bound } = held;
  const tokens = capped(promptTokens, TOKENS_MAX);
  const rates = heldRates(billing, held, tokens);
  const toolsUsd = ("tools" in bound && rates && bound.tools?.mostUsd) || 0;
  return {
    fixed: { money: tokens * (rates?.inputNanoUsd ?? 0) + nanoUsdOf(toolsUsd), tokens },
    perToken: { money: rates?.outputNanoUsd ?? 0, tokens: 1 },
  };
}

const NO_TOKENS = { tokensMax: 0, tokensLowered: 0, tokensMin: 0, tokensFloor: 0 };

export function demandOf(billing: Billing, options: AdmitOptions): Demand {
  const { payer, bound } = options;
  const tier = billing.tier(payer.tier);
  if ("costUsd" in bound) {
    const money = nanoUsdOf(bound.costUsd);
    const fixed = { money, tokens: capped(bound.tokens ?? 0, TOKENS_MAX) };
    return { payer, tier, fixed, perToken: NOTHING, ...NO_TOKENS, hasPrice: money > 0 };
  }
  const tokensMax = capped(bound.outputTokensMax, TOKENS_MAX);
  let known: ReturnType<typeof heldFor> | null = null;
  // Counting the prompt is expensive; it is skipped where nothing is limited.
  const held = () => {
    known ??= heldFor(billing, options, bound.promptTokens);
    return known;
  };
  return {
    payer,
    tier,
    tokensMax,
    tokensLowered: capped(bound.outputTokensLowered ?? tokensMax, tokensMax),
    tokensMin: capped(bound.outputTokensMin, tokensMax),
    tokensFloor: capped(bound.outputTokensFloor ?? 0, tokensMax),
    get fixed() {
      return held().fixed;
    },
    get perToken() {
      return held().perToken;
    },
    get hasPrice() {
      return this.fixed.money + this.perToken.money > 0;
    },
  };
}
