import { isConsistent, type UsageParts } from "../../kernel/usage-parts.ts";
import { type Price, RATE_NAMES, type TokenRates } from "./price-schema.ts";

/** One USD per million tokens is this many picodollars a token: small enough that six decimals stay exact. */
export const PICO_PER_TOKEN_PER_USD_PER_MILLION = 1e6;
export const PICO_PER_NANO = 1000;

/** Picodollars for one token of each part. */
interface PicoRates {
  input: number;
  cached: number;
  cacheWrite5m: number;
  cacheWrite1h: number;
  audioInput: number;
  imageInput: number;
  output: number;
  reasoning: number;
  audioOutput: number;
  imageOutput: number;
}

export interface TokenPrice {
  rates: PicoRates;
  batch: PicoRates | null;
  /** For a whole request whose prompt is longer; the longest first. */
  longPrompts: readonly { aboveTokens: number; rates: PicoRates; batch: PicoRates | null }[];
}

/** What batches save on a side they save on each of its parts, and at every length. */
function inBatches(rates: TokenRates, input: number, output: number): TokenRates {
  const less = RATE_NAMES.map((name) => {
    const usd = rates[name];
    return [name, usd && usd * (/input|write/.test(name) ? input : output)];
  });
  return Object.fromEntries(less);
}

/** A part without a rate of its own costs what the rest of its side does. */
function picoRates(rates: TokenRates): PicoRates {
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

/** Null where the model is priced by something else than tokens. */
export function tokenPrice(price: Price): TokenPrice | null {
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
    longPrompts: long_prompts
      .map((long) => ({ aboveTokens: long.above_tokens, rates: picoRates(long), batch: batchOf(long) }))
      .sort((a, b) => b.aboveTokens - a.aboveTokens),
  };
}

/** What a request's rates depend on, before it is sent. */
export interface Rated {
  promptTokens: number;
  mentions(word: RegExp): boolean;
  isOwn?: boolean;
  isBatch?: boolean;
}

/** A prompt may turn out to be so much longer than it is estimated. */
const ESTIMATE_ERROR = 5 / 4;
const AN_HOUR = /"(1|\\u0031)h"/;
const SOUND = /"(input_)?audio/i;

/** The dearest rates that a request can come to, of its prompt and of its answer. */
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

/** What of a request went through the upstream's cache, as far as it can be true. */
export interface CacheUse {
  cachedTokens: number;
  cacheWriteTokens: number;
  reasoningTokens: number;
}

export function cacheUseOf(parts: Tokens | null): CacheUse {
  return {
    cachedTokens: parts?.cached ?? 0,
    cacheWriteTokens: (parts?.cacheWrite5m ?? 0) + (parts?.cacheWrite1h ?? 0),
    reasoningTokens: parts?.reasoning ?? 0,
  };
}

export const withoutCache = ({ cachedTokens, cacheWrite5mTokens, cacheWrite1hTokens, ...rest }: UsageParts) =>
  rest;

/** In whole nanodollars, halves rounded up. Parts that contradict their sums are not believed: the plain rate applies. */
export function costOf(price: TokenPrice, usage: UsageParts, parts = partsOf(usage)): number {
  const at = price.longPrompts.find(({ aboveTokens }) => usage.promptTokens > aboveTokens) ?? price;
  const rates = (usage.isBatch ? at.batch : null) ?? at.rates;
  return nanoUsd(parts ?? { input: usage.promptTokens, output: usage.completionTokens }, rates);
}

type Tokens = Partial<PicoRates>;

/** Every token under one rate; null where the parts contradict each other. */
export function partsOf(usage: UsageParts): Tokens | null {
  if (!isConsistent(usage)) return null;
  const { promptTokens, completionTokens, cachedTokens = 0 } = usage;
  const {
    cacheWrite5mTokens = 0,
    cacheWrite1hTokens = 0,
    audioInputTokens = 0,
    imageInputTokens = 0,
  } = usage;
  const { reasoningTokens = 0, audioOutputTokens = 0, imageOutputTokens = 0 } = usage;
  const media = audioInputTokens + imageInputTokens;
  const special = reasoningTokens + audioOutputTokens + imageOutputTokens;
  // Sound and pictures may be cached too; nobody says how many of them, so they count as fresh.
  let left = promptTokens - media;
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
    output: completionTokens - special,
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
