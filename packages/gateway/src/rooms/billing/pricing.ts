import { BoundedMap } from "../../kernel/bounded.ts";
import type { UsageParts } from "../../kernel/usage-parts.ts";
import type { Price, PriceParts } from "./price-schema.ts";
import {
  cacheUseOf,
  costOf,
  dearestRates,
  PICO_PER_NANO,
  PICO_PER_TOKEN_PER_USD_PER_MILLION,
  partsOf,
  type Rated,
  type TokenPrice,
  tokenPrice,
  withoutCache,
} from "./token-price.ts";
import { isPerUnit, type UnitPrice, type UnitRates, unitPrice, type WorkUnit } from "./unit-price.ts";

interface Row {
  match: string;
  isBuiltIn: boolean;
  /** Null where the model is priced by something else than tokens. */
  tokens: TokenPrice | null;
  price: Price;
}

/** How much a model reads and writes at most, as far as it is known. */
export interface ModelLimits {
  outputTokensMax: number | null;
  /** Prompt and output together. */
  contextTokens: number | null;
}

interface Terms {
  tokens: TokenPrice | null;
  /** Every price that matches, the one that counts first. */
  prices: readonly Price[];
}

/** What is known of a model: its price, and its limits, which may come from another row. */
interface KnownModel extends ModelLimits, Terms {
  own: Terms;
}

const termsIn = (rows: readonly Row[]): Terms => ({
  tokens: rows.find(({ tokens }) => tokens !== null)?.tokens ?? null,
  prices: rows.map(({ price }) => price),
});

const toRow = (price: Price, isBuiltIn = false): Row => ({
  match: price.match.toLowerCase(),
  isBuiltIn,
  tokens: tokenPrice(price),
  price,
});

const longestFirst = (prices: readonly Price[], isBuiltIn = false): Row[] =>
  prices
    .map((price) => toRow(price, isBuiltIn))
    .sort((a, b) => b.match.length - a.match.length || (a.match < b.match ? -1 : a.match > b.match ? 1 : 0));

/** Prices by part of the model id: the operator's before the built-in ones, the longest match first in each. */
export class Pricing {
  #rows: readonly Row[] = [];
  /** Those of administrators, which go before all others: by lowercased model id, */
  #exact: ReadonlyMap<string, Row> = new Map();
  /** and those for all ids that begin alike: `openai/*`, the longest first. */
  #beginnings: readonly (Row & { beginning: string })[] = [];
  /** Model ids come from clients, so what is remembered about them is bounded. */
  readonly #known = new BoundedMap<string, KnownModel>();

  constructor(
    readonly builtIn: readonly Price[],
    operator: readonly Price[] = [],
  ) {
    this.setOperator(operator);
  }

  setOperator(prices: readonly Price[]): void {
    this.#rows = [...longestFirst(prices), ...longestFirst(this.builtIn, true)];
    this.#known.clear();
  }

  /** Puts the prices that administrators set in the place of the old ones. */
  setByAdministrators(prices: readonly Price[]): void {
    this.#exact = new Map(prices.map((price) => [price.match.toLowerCase(), toRow(price)]));
    this.#beginnings = longestFirst(prices.filter(({ match }) => match.endsWith("*"))).map((row) => ({
      ...row,
      beginning: row.match.slice(0, -1),
    }));
    this.#known.clear();
  }

  #of(model: string): KnownModel {
    const known = this.#known.get(model);
    if (known !== undefined) return known;
    const id = model.toLowerCase();
    const matching = this.#rows.filter(({ match }) => id.includes(match));
    const applying = [...this.#byAdministrators(id), ...matching];
    // A price need not repeat the limits of the one that it replaces.
    const limit = (name: "max_output_tokens" | "context_window") =>
      applying.find(({ price }) => price[name] !== undefined)?.price[name] ?? null;
    const found = {
      ...termsIn(applying),
      own: termsIn(applying.filter(({ isBuiltIn }) => !isBuiltIn)),
      outputTokensMax: limit("max_output_tokens"),
      contextTokens: limit("context_window"),
    };
    this.#known.set(model, found);
    return found;
  }

  #byAdministrators(id: string): Row[] {
    const exact = this.#exact.get(id);
    return [
      ...(exact ? [exact] : []),
      ...this.#beginnings.filter(({ beginning }) => id.startsWith(beginning)),
    ];
  }

  /** Otherwise its price is built in, or from the pricing file. */
  isSetByAdministrators(model: string): boolean {
    return this.#byAdministrators(model.toLowerCase()).length > 0;
  }

  #terms(model: string, isOwn: boolean): Terms {
    const known = this.#of(model);
    return isOwn ? known.own : known;
  }

  limitsOf(model: string): ModelLimits {
    return this.#of(model);
  }

  /** The price in these units; null when it is by the token, or there is none. The first that applies counts. */
  unitPriceOf(model: string, units: readonly WorkUnit[], isOwn = false): UnitPrice | null {
    for (const price of this.#terms(model, isOwn).prices) {
      const found = unitPrice(price, units);
      if (found) return found;
      if (price.input !== undefined) return null;
    }
    return null;
  }

  /** The prices by other units than the token, of those that apply to the model; empty where there is none. */
  unitRatesOf(model: string, isOwn = false): UnitRates {
    for (const price of this.#terms(model, isOwn).prices) {
      const { per_call, per_image, per_second, per_million_characters } = price;
      if (isPerUnit(price)) return { per_call, per_image, per_second, per_million_characters };
      if (price.input !== undefined) break;
    }
    return {};
  }

  /** Nanodollars a token at the dearest rates that the request can come to; null when no price matches the model. */
  dearestRatesOf(model: string, rated: Rated): { inputNanoUsd: number; outputNanoUsd: number } | null {
    const { tokens } = this.#terms(model, rated.isOwn ?? false);
    if (!tokens) return null;
    const { input, output } = dearestRates(tokens, rated);
    return { inputNanoUsd: input / PICO_PER_NANO, outputNanoUsd: output / PICO_PER_NANO };
  }

  /** Dollars per million tokens; null when no price matches the model. */
  priceOf(model: string, isOwn = false): { input: number; output: number } | null {
    const rates = this.#terms(model, isOwn).tokens?.rates;
    return rates
      ? {
          input: rates.input / PICO_PER_TOKEN_PER_USD_PER_MILLION,
          output: rates.output / PICO_PER_TOKEN_PER_USD_PER_MILLION,
        }
      : null;
  }

  /** The first price by the token that applies to the model, with its parts. */
  partsOf(model: string, isOwn = false): PriceParts {
    return this.#terms(model, isOwn).prices.find(({ input }) => input !== undefined) ?? {};
  }

  /** What a request costs, what of it went through the upstream's cache, and what that saved. */
  bill(model: string, usage: UsageParts, isOwn = false) {
    const { tokens } = this.#terms(model, isOwn);
    const parts = partsOf(usage);
    const costNanoUsd = tokens && costOf(tokens, usage, parts);
    const use = cacheUseOf(parts);
    const isCached = costNanoUsd !== null && use.cachedTokens + use.cacheWriteTokens > 0;
    const plain = isCached ? costOf(tokens!, withoutCache(usage)) : 0;
    return { ...use, costNanoUsd, cacheSavedNanoUsd: isCached ? plain - costNanoUsd : 0 };
  }
}
