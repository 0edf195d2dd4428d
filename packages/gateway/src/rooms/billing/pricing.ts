import { BoundedMap } from "../../kernel/bounded.ts";
import type { Price } from "./prices.ts";
import { isPerUnit, type UnitPrice, type UnitRates, unitPrice, type WorkUnit } from "./unit-price.ts";

/** Model ids come from clients, so what is remembered about them is bounded. */
const REMEMBERED_MODELS_MAX = 10_000;
/** One USD per million tokens is this many picodollars a token: small enough that six decimals stay exact. */
const PICO_PER_TOKEN_PER_USD_PER_MILLION = 1e6;
const PICO_PER_NANO = 1000;

interface TokenRate {
  inputPico: number;
  outputPico: number;
}

interface Row extends ModelLimits {
  match: string;
  /** Null where the model is priced by something else than tokens. */
  rate: TokenRate | null;
  price: Price;
}

/** How much a model reads and writes at most, as far as it is known. */
export interface ModelLimits {
  outputTokensMax: number | null;
  /** Prompt and output together. */
  contextTokens: number | null;
}

/** What is known of a model: its price, and its limits, which may come from another row. */
interface Known extends ModelLimits {
  rate: TokenRate | null;
  /** Every price that matches, the one that counts first. */
  prices: readonly Price[];
}

const picoPerToken = (usdPerMillion: number): number =>
  Math.round(usdPerMillion * PICO_PER_TOKEN_PER_USD_PER_MILLION);

function toRow(price: Price): Row {
  const { match, input, output, max_output_tokens, context_window } = price;
  const isByToken = input !== undefined && output !== undefined;
  return {
    match: match.toLowerCase(),
    rate: isByToken ? { inputPico: picoPerToken(input), outputPico: picoPerToken(output) } : null,
    price,
    outputTokensMax: max_output_tokens ?? null,
    contextTokens: context_window ?? null,
  };
}

const longestFirst = (prices: readonly Price[]): Row[] =>
  prices
    .map(toRow)
    .sort((a, b) => b.match.length - a.match.length || (a.match < b.match ? -1 : a.match > b.match ? 1 : 0));

export interface TokenCounts {
  promptTokens: number;
  completionTokens: number;
}

/** Prices by part of the model id: the operator's before the built-in ones, the longest match first in each. */
export class Pricing {
  #rows: readonly Row[];
  /** By lowercased model id; they go before all others. */
  #exact: ReadonlyMap<string, Row> = new Map();
  readonly #known = new BoundedMap<string, Known>(REMEMBERED_MODELS_MAX);

  constructor(
    readonly builtIn: readonly Price[],
    operator: readonly Price[] = [],
  ) {
    this.#rows = [...longestFirst(operator), ...longestFirst(builtIn)];
  }

  /** Replaces the operator's prices. */
  setOperator(prices: readonly Price[]): void {
    this.#rows = [...longestFirst(prices), ...longestFirst(this.builtIn)];
    this.#known.clear();
  }

  /** Puts the prices that administrators set for whole model ids in the place of the old ones. */
  setExact(prices: readonly Price[]): void {
    this.#exact = new Map(prices.map((price) => [price.match.toLowerCase(), toRow(price)]));
    this.#known.clear();
  }

  #of(model: string): Known {
    const known = this.#known.get(model);
    if (known !== undefined) return known;
    const id = model.toLowerCase();
    const matching = this.#rows.filter(({ match }) => id.includes(match));
    const exact = this.#exact.get(id);
    const applying = exact ? [exact, ...matching] : matching;
    // An operator's price need not repeat the limits of the built-in one.
    const found = {
      rate: applying.find(({ rate }) => rate !== null)?.rate ?? null,
      prices: applying.map(({ price }) => price),
      outputTokensMax:
        matching.find(({ outputTokensMax }) => outputTokensMax !== null)?.outputTokensMax ?? null,
      contextTokens: matching.find(({ contextTokens }) => contextTokens !== null)?.contextTokens ?? null,
    };
    this.#known.set(model, found);
    return found;
  }

  limitsOf(model: string): ModelLimits {
    return this.#of(model);
  }

  /**
   * The price of work that is counted in these units; null when it is priced by the token, or not at all. The first
   * price that matches the model and can be applied counts.
   */
  unitPriceOf(model: string, units: readonly WorkUnit[]): UnitPrice | null {
    for (const price of this.#of(model).prices) {
      const found = unitPrice(price, units);
      if (found) return found;
      if (price.input !== undefined) return null;
    }
    return null;
  }

  /** The prices by other units than the token, of those that apply to the model; empty where there is none. */
  unitRatesOf(model: string): UnitRates {
    for (const price of this.#of(model).prices) {
      const { per_call, per_image, per_second, per_million_characters } = price;
      if (isPerUnit(price)) return { per_call, per_image, per_second, per_million_characters };
      if (price.input !== undefined) break;
    }
    return {};
  }

  /** Nanodollars a token, in fractions; null when no price matches the model. */
  ratesOf(model: string): { inputNanoUsd: number; outputNanoUsd: number } | null {
    const { rate } = this.#of(model);
    return (
      rate && { inputNanoUsd: rate.inputPico / PICO_PER_NANO, outputNanoUsd: rate.outputPico / PICO_PER_NANO }
    );
  }

  /** Dollars per million tokens; null when no price matches the model. */
  priceOf(model: string): { input: number; output: number } | null {
    const { rate } = this.#of(model);
    return (
      rate && {
        input: rate.inputPico / PICO_PER_TOKEN_PER_USD_PER_MILLION,
        output: rate.outputPico / PICO_PER_TOKEN_PER_USD_PER_MILLION,
      }
    );
  }

  /** Exact cost in whole nanodollars, halves rounded up; null when no price matches the model. */
  costNanoUsd(model: string, { promptTokens, completionTokens }: TokenCounts): number | null {
    const { rate } = this.#of(model);
    if (!rate) return null;
    const pico = promptTokens * rate.inputPico + completionTokens * rate.outputPico;
    if (pico <= Number.MAX_SAFE_INTEGER) return Math.floor((pico + PICO_PER_NANO / 2) / PICO_PER_NANO);
    const exact =
      BigInt(promptTokens) * BigInt(rate.inputPico) + BigInt(completionTokens) * BigInt(rate.outputPico);
    return Number((exact + BigInt(PICO_PER_NANO / 2)) / BigInt(PICO_PER_NANO));
  }
}
