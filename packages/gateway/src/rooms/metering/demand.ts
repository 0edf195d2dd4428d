import type { Quantity } from "../../bus/contract.ts";
import type { Billing } from "../billing/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import type { Demand } from "./cover.ts";
import { NOTHING } from "./limits.ts";
import type { AdmitOptions } from "./types.ts";

/** Figures from outside are capped: an absurd or infinite one would spoil every sum it is in. */
export const TOKENS_MAX = 1e9;
export const COST_NANO_USD_MAX = 1e6 * NANO_PER_USD;
export const within = (value: number, max: number): number =>
  value > 0 ? Math.min(Math.floor(value), max) : 0;
export const nanoUsdOf = (usd: number): number => within(Math.round(usd * NANO_PER_USD), COST_NANO_USD_MAX);

type Rates = Pick<Billing, "pricing">;
/** What an upstream asks may be so many times the price by the token, or so much where there is none. */
const REPORTED_TIMES_MAX = 10;
const REPORTED_NANO_USD_MAX = 100 * NANO_PER_USD;
/** The cost that an upstream reports; null where there is none that can be true. */
export function believedCost(reportedUsd: number | undefined, byTokensNanoUsd: number | null): number | null {
  if (reportedUsd === undefined || reportedUsd < 0) return null;
  const most = byTokensNanoUsd === null ? REPORTED_NANO_USD_MAX : byTokensNanoUsd * REPORTED_TIMES_MAX;
  const nanoUsd = Math.round(reportedUsd * NANO_PER_USD);
  return nanoUsd <= most ? nanoUsd : null;
}

type Held = Pick<AdmitOptions, "model" | "isOwn" | "isBatch" | "bound">;
/** The dearest rates that such a prompt, and its answer, can come to; null: it has no price. */
export function heldRates(billing: Rates, { model, isOwn, isBatch, bound }: Held, promptTokens: number) {
  const mentions = (word: RegExp) => !("mentions" in bound) || bound.mentions!(word);
  return billing.pricing.dearestRatesOf(model, { promptTokens, mentions, isOwn, isBatch });
}

/** What is held for such a prompt, and for each token of the answer. */
export function heldFor(
  billing: Rates,
  held: Held,
  promptTokens: number,
): { fixed: Quantity; perToken: Quantity } {
  const { bound } = held;
  const tokens = within(promptTokens, TOKENS_MAX);
  const rates = heldRates(billing, held, tokens);
  const toolsUsd = ("tools" in bound && rates && bound.tools?.mostUsd) || 0;
  return {
    fixed: { money: tokens * (rates?.inputNanoUsd ?? 0) + nanoUsdOf(toolsUsd), tokens },
    perToken: { money: rates?.outputNanoUsd ?? 0, tokens: 1 },
  };
}

export function demandOf(billing: Billing, options: AdmitOptions): Demand {
  const { payer, bound } = options;
  const tier = billing.tier(payer.tier);
  if ("costUsd" in bound) {
    const money = nanoUsdOf(bound.costUsd);
    const fixed = { money, tokens: within(bound.tokens ?? 0, TOKENS_MAX) };
    return { payer, tier, fixed, perToken: NOTHING, tokensMax: 0, tokensMin: 0, hasPrice: money > 0 };
  }
  const tokensMax = within(bound.outputTokensMax, TOKENS_MAX);
  let known: ReturnType<typeof heldFor> | null = null;
  // The prompt is counted when it is asked for: where nothing is limited, nobody asks.
  const held = () => {
    known ??= heldFor(billing, options, bound.promptTokens);
    return known;
  };
  return {
    payer,
    tier,
    tokensMax,
    tokensMin: within(bound.outputTokensMin, tokensMax),
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
