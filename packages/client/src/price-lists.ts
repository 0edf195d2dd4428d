import type { Params, Result } from "./client.ts";

/** A price as `billing.prices.import` takes it, and the entry of the list that it comes from. */
export interface ListedPrice {
  /** Provider and model, as the list names them. */
  provider: string;
  model: string;
  price: Omit<Params<"billing.prices.import">["prices"][number], "model">;
  /** `chat`, `embedding` and the like, where the list says it. */
  mode: string | null;
  /** When its provider ends it, as a date. */
  ends: string | null;
}

export interface PriceList {
  format: "LiteLLM" | "models.dev";
  prices: ListedPrice[];
}

type Entry = Record<string, unknown>;
type Rates = NonNullable<NonNullable<ListedPrice["price"]["parts"]>["batch"]>;

const isEntry = (value: unknown): value is Entry =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const numberAt = (entry: Entry, name: string): number | undefined => {
  const value = entry[name];
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
};
const tokensAt = (entry: Entry, name: string): number | undefined => {
  const value = numberAt(entry, name);
  return Number.isInteger(value) && value! > 0 ? value : undefined;
};
/** Reading or writing a cache that is said to cost nothing, where the input does, is not known to. */
function plausible(rates: Partial<Rates>): Partial<Rates> {
  const { cached_input, cache_write, ...rest } = rates;
  return withoutGaps({
    ...rest,
    cached_input: cached_input || undefined,
    cache_write: cache_write || undefined,
  });
}
const withoutGaps = <Shape extends object>(shape: Shape): Shape =>
  Object.fromEntries(Object.entries(shape).filter(([, value]) => value !== undefined)) as Shape;

/** Reads the price list of LiteLLM or models.dev; throws where it is neither. */
export function readPriceList(json: unknown): PriceList {
  const entries = isEntry(json) ? Object.entries(json).filter(([, entry]) => isEntry(entry)) : [];
  if (entries.some(([, entry]) => typeof (entry as Entry).litellm_provider === "string"))
    return { format: "LiteLLM", prices: entries.flatMap(([name, entry]) => ofLiteLLM(name, entry as Entry)) };
  if (entries.some(([, entry]) => isEntry((entry as Entry).models)))
    return {
      format: "models.dev",
      prices: entries.flatMap(([id, entry]) => ofModelsDev(id, entry as Entry)),
    };
  throw new Error("neither LiteLLM's price list nor that of models.dev: no entry of either form is in it");
}

/** US dollars a token become dollars a million; the sixth decimal is the last that prices have. */
const perMillion = (entry: Entry, name: string): number | undefined => {
  const usd = numberAt(entry, name);
  return usd === undefined ? undefined : Number((usd * 1e6).toFixed(6));
};

const liteRates = (entry: Entry, suffix = ""): Partial<Rates> =>
  plausible({
    input: perMillion(entry, `input_cost_per_token${suffix}`),
    output: perMillion(entry, `output_cost_per_token${suffix}`),
    cached_input: perMillion(entry, `cache_read_input_token_cost${suffix}`),
    cache_write: perMillion(entry, `cache_creation_input_token_cost${suffix}`),
    cache_write_1h: perMillion(entry, `cache_creation_input_token_cost_above_1hr${suffix}`),
    reasoning: perMillion(entry, `output_cost_per_reasoning_token${suffix}`),
    audio_input: perMillion(entry, `input_cost_per_audio_token${suffix}`),
    audio_output: perMillion(entry, `output_cost_per_audio_token${suffix}`),
    image_input: perMillion(entry, `input_cost_per_image_token${suffix}`),
    image_output: perMillion(entry, `output_cost_per_image_token${suffix}`),
  });

/** What writes nothing often has no price for it. */
const SILENT_MODES: Record<string, Partial<Rates>> = { embedding: { output: 0 }, rerank: { output: 0 } };
const ABOVE = /^input_cost_per_token(_above_(\d+)k_tokens)$/;

/** What is not named for long prompts costs what it does for short ones. */
function liteLongPrompts(entry: Entry, plain: Partial<Rates>) {
  const named = Object.keys(entry).flatMap((name) => {
    const [, suffix, thousands] = ABOVE.exec(name) ?? [];
    return suffix ? [{ above_tokens: Number(thousands) * 1_000, rates: liteRates(entry, suffix) }] : [];
  });
  const tiers = Array.isArray(entry.tiered_pricing) ? entry.tiered_pricing.filter(isEntry) : [];
  const tiered = tiers.flatMap((tier) => {
    const from = Array.isArray(tier.range) ? Number(tier.range[0]) : 0;
    return from > 0 ? [{ above_tokens: from, rates: liteRates(tier) }] : [];
  });
  return [...named, ...tiered].map(({ above_tokens, rates }) => ({ above_tokens, ...plain, ...rates }));
}

function ofLiteLLM(name: string, entry: Entry): ListedPrice[] {
  const provider = typeof entry.litellm_provider === "string" ? entry.litellm_provider : "";
  const first = Array.isArray(entry.tiered_pricing) ? entry.tiered_pricing.find(isEntry) : undefined;
  const mode = typeof entry.mode === "string" ? entry.mode : null;
  const plain = { ...SILENT_MODES[mode ?? ""], ...liteRates(entry), ...(first && liteRates(first)) };
  if (mode === "image_generation") plain.output ??= plain.image_output;
  const price = priceOf(plain, {
    long_prompts: liteLongPrompts(entry, plain),
    batch: liteRates(entry, "_batches"),
    units: unitPrices(entry),
    max_output_tokens: tokensAt(entry, "max_output_tokens"),
    context_window: tokensAt(entry, "max_input_tokens"),
  });
  const model = name.startsWith(`${provider}/`) ? name.slice(provider.length + 1) : name;
  const ends = typeof entry.deprecation_date === "string" ? entry.deprecation_date : null;
  return price && name !== "sample_spec" ? [{ provider, model, price, mode, ends }] : [];
}

function unitPrices(entry: Entry): ListedPrice["price"] {
  const { mode } = entry;
  const characters = perMillion(entry, "input_cost_per_character");
  return withoutGaps({
    per_image_usd: mode === "image_generation" ? numberAt(entry, "output_cost_per_image") : undefined,
    per_second_usd: mode === "audio_transcription" ? numberAt(entry, "input_cost_per_second") : undefined,
    per_million_characters_usd: mode === "audio_speech" ? characters : undefined,
    per_call_usd: mode === "rerank" ? numberAt(entry, "input_cost_per_query") : undefined,
  });
}

const devRates = (cost: Entry): Partial<Rates> =>
  plausible({
    input: numberAt(cost, "input"),
    output: numberAt(cost, "output"),
    cached_input: numberAt(cost, "cache_read"),
    cache_write: numberAt(cost, "cache_write"),
    reasoning: numberAt(cost, "reasoning"),
    audio_input: numberAt(cost, "input_audio"),
    audio_output: numberAt(cost, "output_audio"),
  });

/** Claude keeps for an hour at twice the input's price, which models.dev does not have: 1.6 times five minutes'. */
const CLAUDE_HOUR = 1.6;
const withHour = (rates: Partial<Rates>): Partial<Rates> =>
  rates.cache_write === undefined
    ? rates
    : { ...rates, cache_write_1h: Number((rates.cache_write * CLAUDE_HOUR).toFixed(6)) };

function ofModelsDev(provider: string, { models }: Entry): ListedPrice[] {
  return Object.entries(isEntry(models) ? models : {}).flatMap(([model, entry]) => {
    if (!isEntry(entry) || !isEntry(entry.cost)) return [];
    const { cost } = entry;
    const read = (rates: Entry) => (/claude/i.test(model) ? withHour(devRates(rates)) : devRates(rates));
    const plain = read(cost);
    const tiers = Array.isArray(cost.tiers) ? cost.tiers.filter(isEntry) : [];
    const long = tiers.flatMap((rates) => {
      const above_tokens = isEntry(rates.tier) ? tokensAt(rates.tier, "size") : undefined;
      return above_tokens ? [{ above_tokens, ...plain, ...read(rates) }] : [];
    });
    if (long.length === 0 && isEntry(cost.context_over_200k))
      long.push({ above_tokens: 200_000, ...plain, ...read(cost.context_over_200k) });
    const limit = isEntry(entry.limit) ? entry.limit : {};
    const price = priceOf(plain, {
      long_prompts: long,
      batch: {},
      units: {},
      max_output_tokens: tokensAt(limit, "output"),
      context_window: tokensAt(limit, "context"),
    });
    return price ? [{ provider, model, price, mode: null, ends: null }] : [];
  });
}

interface Rest {
  long_prompts: ({ above_tokens: number } & Partial<Rates>)[];
  batch: Partial<Rates>;
  units: ListedPrice["price"];
  max_output_tokens: number | undefined;
  context_window: number | undefined;
}

const isWhole = <Some extends Partial<Rates>>(rates: Some): rates is Some & Rates =>
  rates.input !== undefined && rates.output !== undefined;

/** Null where the entry has no price: unknown, not free. */
function priceOf(plain: Partial<Rates>, { long_prompts, batch, units, ...limits }: Rest) {
  const { input, output, ...parts } = plain;
  if (input === undefined || output === undefined)
    return Object.keys(units).length > 0 ? withoutGaps({ ...units, ...limits }) : null;
  const long = long_prompts.filter(isWhole);
  const more = withoutGaps({
    ...parts,
    long_prompts: long.length > 0 ? long : undefined,
    batch: isWhole(batch) ? batch : undefined,
  });
  return withoutGaps({
    ...{ input_usd: input, output_usd: output, parts: Object.keys(more).length > 0 ? more : undefined },
    ...{ ...units, ...limits },
  });
}

/** Makers of models sell them at the list's price; others resell them. */
const MAKERS =
  /^(openai|anthropic|google|gemini|mistral|xai|deepseek|cohere|moonshot|zai|minimax|dashscope|alibaba)/;

type CurrentPrice = Result<"billing.prices.list">[number];

export type PriceChange = {
  /** As `billing.prices.import` takes it. */
  price: Params<"billing.prices.import">["prices"][number];
  before: CurrentPrice;
  /** Provider and model of the entry. */
  from: string;
};

/** Equal for equal prices, in whatever order their parts are. */
const signOf = (value: unknown): string =>
  JSON.stringify(value, (_, inner) =>
    isEntry(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  );

/**
 * What the list changes for models that can be called now. Of several entries that fit a model: the one with its full
 * name, then its maker's, then any.
 */
export function priceChanges(
  list: PriceList,
  current: readonly CurrentPrice[],
  provider?: string,
): PriceChange[] {
  const byName = new Map<string, ListedPrice[]>();
  for (const entry of list.prices) {
    if (provider !== undefined && entry.provider !== provider) continue;
    const name = entry.model.toLowerCase();
    for (const id of new Set([name, `${entry.provider}/${name}`, name.slice(name.lastIndexOf("/") + 1)]))
      byName.set(id, [...(byName.get(id) ?? []), entry]);
  }
  return current.flatMap((before) => {
    const id = before.model.toLowerCase().replace(/^models\//, "");
    const found = byName.get(id) ?? [];
    const entry =
      found.find((each) => each.model.toLowerCase() === id && MAKERS.test(each.provider)) ??
      found.find((each) => MAKERS.test(each.provider)) ??
      found[0];
    // What runs on own hardware costs nothing until somebody sets a price for it by hand.
    if (!entry || before.not_billed) return [];
    const { capabilities: _, unpriced: __, not_billed: ___, source: ____, model, ...was } = before;
    const { max_output_tokens: _____, context_window: ______, ...listed } = entry.price;
    const will = { input_usd: null, output_usd: null, parts: {}, ...listed };
    if (signOf(withoutGaps(was)) === signOf(will)) return [];
    return [{ price: { model, ...entry.price }, before, from: `${entry.provider}/${entry.model}` }];
  });
}
