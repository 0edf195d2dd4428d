import { isConsistent, type UsageParts } from "../../kernel/usage-parts.ts";
import { type Price, RATE_NAMES, type TokenRates } from "./price-schema.ts";

/** One USD per million tokens in picodollars per token, a unit that keeps six decimals exact. */
export const PICO_PER_TOKEN_PER_USD_PER_MILLION = 1e6;
export const PICO_PER_NANO = 1000;

/** A batch's discount on `input` or `output` applies to each of its parts, and to long prompts. */
function inBatches(rates: TokenRates, input: number, output: number): TokenRates {
  const less = RATE_NAMES.map((name) => {
    const usd = rates[name];
    return [name, usd && usd * (/input|write/.test(name) ? input : output)];
  });
  return Object.fromEntries(less);
}

/** In picodollars per token. A part without its own rate has the rate of `input` or `output`. */
function picoRates(rates: TokenRates) {
  const pico = (usdPerMillion: number) => Math.round(usdPerMillion * PICO_PER_TOKEN_PER_USD_PER_MILLION);
  const { input, output } = rates;
  const write = rates.cache_write ?? input;
  return {
    input: pico(input),
    cached: pico(rates.cached_input ?? input),
    cacheWrite5m: pico(write),
    cacheWrite1h: pico(rates.cache_write_1h ?? write),
    audioInput: pico(rates.audio_input ?? input),
    imageInput: pico(rates.image_input ?? input),
    output: pico(output),
    reasoning: pico(rates.reasoning ?? output),
    audioOutput: pico(rates.audio_output ?? output),
    imageOutput: pico(rates.image_output ?? output),
  };
}

type PicoRates = ReturnType<typeof picoRates>;
export type TokenPrice = NonNullable<ReturnType<typeof tokenPrice>>;

/** Null: the price is by another unit. */
export function tokenPrice(price: Price) {
  const { input, output, long_prompts = [], batch } = price;
  if (input === undefined || output === undefined) return null;
  const rates = { ...price, input, output };
  const part = (of: number, whole: number) => (whole > 0 ? of / whole : 1);
  const batchOf = (plain: TokenRates, own?: TokenRates) =>
    batch
      ? picoRates({ ...inBatches(plain, part(batch.input, input), part(batch.output, output)), ...own })
      : null;
  return {
    rates: picoRates(rates),
    batch: batchOf(rates, batch),
    // Rates of the whole request if its prompt is longer; the longest first.
    longPrompts: long_prompts
      .map((long) => ({ aboveTokens: long.above_tokens, rates: picoRates(long), batch: batchOf(long) }))
      .sort((a, b) => b.aboveTokens - a.aboveTokens),
  };
}

/** What determines a request's rates before it is sent. */
export interface Rated {
  promptTokens: number;
  mentions(word: RegExp): boolean;
  isOwn?: boolean;
  isBatch?: boolean;
}

/** How much longer than estimated a prompt may be. */
const ESTIMATE_ERROR = 5 / 4;
const AN_HOUR = /"(1|\\u0031)h"/;
const SOUND = /"(input_)?audio/i;

/** The highest rates that may apply to a request's prompt and answer. */
export function dearestRates(
  price: TokenPrice,
  { promptTokens, mentions, isBatch }: Rated,
): Pick<PicoRates, "input" | "output"> {
  const isReached = (long: { aboveTokens: number }) => promptTokens * ESTIMATE_ERROR > long.aboveTokens;
  const reached = [price, ...price.longPrompts.filter(isReached)].map(
    ({ rates, batch }) => (isBatch && batch) || rates,
  );
  let [input, output, ofHour] = [0, 0, 0];
  const ofSound = { input: 0, output: 0 };
  for (const each of reached) {
    input = Math.max(input, each.input, each.cacheWrite5m, each.imageInput);
    output = Math.max(output, each.output, each.reasoning, each.imageOutput);
    ofHour = Math.max(ofHour, each.cacheWrite1h);
    ofSound.input = Math.max(ofSound.input, each.audioInput);
    ofSound.output = Math.max(ofSound.output, each.audioOutput);
  }
  const isSound = (ofSound.input > input || ofSound.output > output) && mentions(SOUND);
  return {
    input: Math.max(input, ofHour > input && mentions(AN_HOUR) ? ofHour : 0, isSound ? ofSound.input : 0),
    output: Math.max(output, isSound ? ofSound.output : 0),
  };
}

/** In whole nanodollars, halves rounded up. If the parts contradict their sums, the plain rates apply. */
export function costOf(price: TokenPrice, usage: UsageParts, parts = partsOf(usage)): number {
  const at = price.longPrompts.find(({ aboveTokens }) => usage.promptTokens > aboveTokens) ?? price;
  const rates = (usage.isBatch ? at.batch : null) ?? at.rates;
  return nanoUsd(parts ?? { input: usage.promptTokens, output: usage.completionTokens }, rates);
}

type Tokens = Partial<PicoRates>;

/** Splits the tokens by rate; null if the parts contradict each other. */
export function partsOf(usage: UsageParts): Tokens | null {
  if (!isConsistent(usage)) return null;
  const { cachedTokens = 0, cacheWrite5mTokens = 0, cacheWrite1hTokens = 0 } = usage;
  const { audioInputTokens = 0, imageInputTokens = 0 } = usage;
  const { reasoningTokens = 0, audioOutputTokens = 0, imageOutputTokens = 0 } = usage;
  // Sound and images may be cached too, but no API reports how many of their tokens, so they count as uncached.
  let left = usage.promptTokens - audioInputTokens - imageInputTokens;
  const take = (tokens: number) => {
    const taken = Math.min(tokens, left);
    left -= taken;
    return taken;
  };
  return {
    cacheWrite1h: take(cacheWrite1hTokens),
    cacheWrite5m: take(cacheWrite5mTokens),
    cached: take(cachedTokens),
    input: left,
    audioInput: audioInputTokens,
    imageInput: imageInputTokens,
    output: usage.completionTokens - reasoningTokens - audioOutputTokens - imageOutputTokens,
    reasoning: reasoningTokens,
    audioOutput: audioOutputTokens,
    imageOutput: imageOutputTokens,
  };
}

function nanoUsd(tokens: Tokens, rates: PicoRates): number {
  const parts = Object.keys(tokens) as (keyof PicoRates)[];
  let pico = 0;
  for (const part of parts) pico += (tokens[part] ?? 0) * rates[part];
  if (pico <= Number.MAX_SAFE_INTEGER) return Math.floor((pico + PICO_PER_NANO / 2) / PICO_PER_NANO);
  const exact = parts.reduce((sum, part) => sum + BigInt(tokens[part] ?? 0) * BigInt(rates[part]), 0n);
  return Number((exact + BigInt(PICO_PER_NANO / 2)) / BigInt(PICO_PER_NANO));
}
