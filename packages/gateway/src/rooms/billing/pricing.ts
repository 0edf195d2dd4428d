import { BoundedMap } from "../../kernel/bounded.ts";
import type { UsageParts } from "../../kernel/usage-parts.ts";
import { type Price, type PriceParts, UNIT_RATES } from "./price-schema.ts";
import {
  costOf,
  dearestRates,
  PICO_PER_NANO,
  PICO_PER_TOKEN_PER_USD_PER_MILLION,
  partsOf,
  type Rated,
  type TokenPrice,
  tokenPrice,
} from "./token-price.ts";

/** What requests other than chats and embeddings are priced by. */
export type WorkUnit = "call" | "image" | "second" | "character";

/** The upstream decides, so the highest price may apply. */
export const ANY = "auto";

export interface ImageLook {
  size: string | null;
  quality: string | null;
}

export interface UnitPrice {
  unit: WorkUnit;
  /** US dollars for one unit; an image's price may depend on its look. */
  usd(look?: ImageLook): number;
}

type UnitRates = Pick<Price, (typeof UNIT_RATES)[number]>;

export const isPerUnit = (price: UnitRates): boolean => UNIT_RATES.some((rate) => price[rate] !== undefined);

/** In order of preference. */
const RATES: readonly [unit: WorkUnit, rate: keyof UnitRates, per: number][] = [
  ["image", "per_image", 1],
  ["second", "per_second", 1],
  ["character", "per_million_characters", 1_000_000],
  ["call", "per_call", 1],
];

function unitPrice(price: Price, units: readonly WorkUnit[]): UnitPrice | null {
  for (const [unit, rate, per] of RATES) {
    const usd = price[rate];
    if (usd === undefined || !units.includes(unit)) continue;
    return { unit, usd: (look) => (typeof usd === "number" ? usd / per : imageUsd(usd, look)) };
  }
  return null;
}

const isSize = (word: string): boolean => /^\d+x\d+$/.test(word);

/** The price of the most specific key that fits; the highest possible one if the look or the keys leave it open. */
function imageUsd(
  prices: Readonly<Record<string, number>>,
  { size, quality }: ImageLook = { size: null, quality: null },
): number {
  const all = Object.entries(prices).map(([key, usd]) => ({ words: key.split("/"), usd }));
  const fits = (word: string): boolean => {
    const asked = isSize(word) ? size : quality;
    return asked === ANY || asked === word;
  };
  const fitting = all.filter(({ words }) => words.every(fits));
  const isOpen = size === ANY || quality === ANY;
  const most = Math.max(0, ...fitting.map(({ words }) => words.length));
  const possible = isOpen ? fitting : fitting.filter(({ words }) => words.length === most);
  return Math.max(...(possible.length > 0 ? possible : all).map(({ usd }) => usd));
}

interface Row {
  match: string;
  isBuiltIn: boolean;
  /** Null: the price is by another unit. */
  tokens: TokenPrice | null;
  price: Price;
}

/** Null: unknown. */
export interface ModelLimits {
  outputTokensMax: number | null;
  /** Prompt and output together. */
  contextTokens: number | null;
}

interface Terms {
  tokens: TokenPrice | null;
  /** Every price that matches the model; the first one counts. */
  prices: readonly Price[];
}

interface KnownModel extends ModelLimits, Terms {
  /** Its price on own hardware, where built-in prices do not count. */
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

/** Prices by part of the model id: the operator's before the built-in ones, in each the longest match first. */
export class Pricing {
  #rows: readonly Row[] = [];
  /** Set by administrators, which go before all others: by lowercased model id. */
  #exact: ReadonlyMap<string, Row> = new Map();
  /** Those of them for all ids with the same beginning: `openai/*`. */
  #beginnings: readonly Row[] = [];
  /** Bounded, because model ids come from clients. */
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

  setByAdministrators(prices: readonly Price[]): void {
    this.#exact = new Map(prices.map((price) => [price.match.toLowerCase(), toRow(price)]));
    this.#beginnings = longestFirst(prices.filter(({ match }) => match.endsWith("*")));
    this.#known.clear();
  }

  #of(model: string): KnownModel {
    const known = this.#known.get(model);
    if (known !== undefined) return known;
    const id = model.toLowerCase();
    const matching = this.#rows.filter(({ match }) => id.includes(match));
    const applying = [...this.#byAdministrators(id), ...matching];
    // A price need not repeat the limits of the price that it replaces.
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
    const exact = this.#exact.get(id) ?? [];
    return [exact, this.#beginnings.filter(({ match }) => id.startsWith(match.slice(0, -1)))].flat();
  }

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

  /** Null if the model is priced by the token, or not at all. */
  unitPriceOf(model: string, units: readonly WorkUnit[], isOwn = false): UnitPrice | null {
    for (const price of this.#terms(model, isOwn).prices) {
      const found = unitPrice(price, units);
      if (found) return found;
      if (price.input !== undefined) return null;
    }
    return null;
  }

  /** The model's rates by other units than the token. */
  unitRatesOf(model: string, isOwn = false): UnitRates {
    for (const price of this.#terms(model, isOwn).prices) {
      const { per_call, per_image, per_second, per_million_characters } = price;
      if (isPerUnit(price)) return { per_call, per_image, per_second, per_million_characters };
      if (price.input !== undefined) break;
    }
    return {};
  }

  /** The highest rates that may apply to a request, in nanodollars per token; null: the model has no token price. */
  dearestRatesOf(model: string, rated: Rated): { inputNanoUsd: number; outputNanoUsd: number } | null {
    const { tokens } = this.#terms(model, rated.isOwn ?? false);
    if (!tokens) return null;
    const { input, output } = dearestRates(tokens, rated);
    return { inputNanoUsd: input / PICO_PER_NANO, outputNanoUsd: output / PICO_PER_NANO };
  }

  /** Dollars per million tokens; null: the model has no token price. On own hardware, built-in prices do not count. */
  priceOf(model: string, isOwn = false): { input: number | null; output: number | null } {
    const rates = this.#terms(model, isOwn).tokens?.rates;
    const usd = (pico?: number) => (pico === undefined ? null : pico / PICO_PER_TOKEN_PER_USD_PER_MILLION);
    return { input: usd(rates?.input), output: usd(rates?.output) };
  }

  partsOf(model: string, isOwn = false): PriceParts {
    return this.#terms(model, isOwn).prices.find(({ input }) => input !== undefined) ?? {};
  }

  /** What a request costs, how much of it went through the upstream's cache, and what that saved. */
  bill(model: string, usage: UsageParts, isOwn = false) {
    const { tokens } = this.#terms(model, isOwn);
    const parts = partsOf(usage);
    const costNanoUsd = tokens && costOf(tokens, usage, parts);
    const { cached: cachedTokens = 0, cacheWrite5m = 0, cacheWrite1h = 0, reasoning = 0 } = parts ?? {};
    const cacheWriteTokens = cacheWrite5m + cacheWrite1h;
    let cacheSavedNanoUsd = 0;
    if (costNanoUsd !== null && cachedTokens + cacheWriteTokens > 0) {
      const uncached = { ...usage, cachedTokens: 0, cacheWrite5mTokens: 0, cacheWrite1hTokens: 0 };
      cacheSavedNanoUsd = costOf(tokens!, uncached) - costNanoUsd;
    }
    return { cachedTokens, cacheWriteTokens, reasoningTokens: reasoning, costNanoUsd, cacheSavedNanoUsd };
  }
}
