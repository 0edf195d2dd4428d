import type { Quantity } from "../../bus/contract.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Billing, Tier } from "../billing/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import type { Demand } from "./cover.ts";
import { NOTHING } from "./limits.ts";
import type { AdmitOptions, TokenBound } from "./types.ts";

/**
 * Figures from upstreams and clients are capped at these: one absurd number must not spoil
 * every sum it is in. An infinite one, reserved and given back, would leave a sum that limits nothing any more.
 */
export const TOKENS_MAX = 1e9;
export const COST_NANO_USD_MAX = 1e6 * NANO_PER_USD;
export const within = (value: number, max: number): number =>
  value > 0 ? Math.min(Math.floor(value), max) : 0;
export const nanoUsdOf = (usd: number): number => within(Math.round(usd * NANO_PER_USD), COST_NANO_USD_MAX);

type Rates = ReturnType<Billing["ratesOf"]>;

export const fixedOf = (promptTokens: number, rates: Rates): Quantity => ({
  money: promptTokens * (rates?.inputNanoUsd ?? 0),
  tokens: promptTokens,
});

/** A bound in tokens. The prompt is counted when it is asked for: where nothing is limited, nobody asks. */
class TokenDemand implements Demand {
  readonly payer: Payer;
  readonly tier: Tier;
  readonly perToken: Quantity;
  readonly tokensMax: number;
  readonly tokensMin: number;
  readonly hasPrice: boolean;
  readonly #bound: TokenBound;
  readonly #rates: Rates;
  #fixed: Quantity | null = null;
  #isRecounted = false;

  constructor({ payer, tier, bound, rates }: { payer: Payer; tier: Tier; bound: TokenBound; rates: Rates }) {
    this.payer = payer;
    this.tier = tier;
    this.perToken = { money: rates?.outputNanoUsd ?? 0, tokens: 1 };
    this.tokensMax = within(bound.outputTokensMax, TOKENS_MAX);
    this.tokensMin = within(bound.outputTokensMin, this.tokensMax);
    this.hasPrice = rates !== null && rates.inputNanoUsd + rates.outputNanoUsd > 0;
    this.#bound = bound;
    this.#rates = rates;
  }

  get fixed(): Quantity {
    this.#fixed ??= fixedOf(within(this.#bound.promptTokens, TOKENS_MAX), this.#rates);
    return this.#fixed;
  }

  recount(): boolean {
    const bound = this.#bound;
    if (this.#isRecounted || !bound.countPromptTokens) return false;
    this.#isRecounted = true;
    const before = this.fixed;
    this.#fixed = fixedOf(within(bound.countPromptTokens(), TOKENS_MAX), this.#rates);
    return this.#fixed.tokens !== before.tokens;
  }
}

/** What the request may take at most. */
export function demandOf(billing: Billing, { payer, model, bound }: AdmitOptions): Demand {
  const tier = billing.tier(payer.tier);
  if (!("costUsd" in bound)) return new TokenDemand({ payer, tier, bound, rates: billing.ratesOf(model) });
  const money = nanoUsdOf(bound.costUsd);
  const fixed = { money, tokens: 0 };
  return { payer, tier, fixed, perToken: NOTHING, tokensMax: 0, tokensMin: 0, hasPrice: money > 0 };
}
