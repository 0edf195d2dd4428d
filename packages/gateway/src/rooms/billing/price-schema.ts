import { z } from "zod";
import { REQUEST_TOKENS_MAX } from "../../kernel/usage-parts.ts";
import catalogue from "./catalogue.json" with { type: "json" };

const USD_PER_MILLION_MAX = 1_000_000;
const USD_EACH_MAX = 10_000;
const IMAGE_PRICES_MAX = 100;
const LONG_PROMPTS_MAX = 4;

/** Per million tokens or characters. */
export const UsdPerMillion = z.number().min(0).max(USD_PER_MILLION_MAX);
/** For one request, image or second. */
export const UsdEach = z.number().min(0).max(USD_EACH_MAX);

export const Tokens = z.int().min(1).max(REQUEST_TOKENS_MAX);

const PART_RATES = {
  cached_input: UsdPerMillion.optional().describe("Read from the upstream's cache"),
  cache_write: UsdPerMillion.optional().describe("Written to it, for five minutes or as is usual"),
  cache_write_1h: UsdPerMillion.optional().describe("Written to it for an hour"),
  reasoning: UsdPerMillion.optional(),
  audio_input: UsdPerMillion.optional(),
  audio_output: UsdPerMillion.optional(),
  image_input: UsdPerMillion.optional(),
  image_output: UsdPerMillion.optional(),
};

/** Per million tokens; a part that is left out costs as much as `input` or `output`. */
const TokenRates = z.object({ input: UsdPerMillion, output: UsdPerMillion, ...PART_RATES });
export type TokenRates = z.infer<typeof TokenRates>;
export const RATE_NAMES = Object.keys(TokenRates.shape) as (keyof TokenRates)[];

/** What a token price may have besides `input` and `output`. */
export const PriceParts = z.object({
  ...PART_RATES,
  long_prompts: z
    .array(TokenRates.extend({ above_tokens: Tokens }))
    .max(LONG_PROMPTS_MAX)
    .optional()
    .describe("Rates of the whole request, when its prompt is longer"),
  batch: TokenRates.optional(),
});
export type PriceParts = z.infer<typeof PriceParts>;

const ImageKey = z
  .string()
  .regex(/^[a-z0-9]+(\/[a-z0-9]+)?$/, "keys are a size, a quality, or both: 1024x1024, hd, hd/1024x1024");

/** One price for every image, or prices by quality, size, or both. */
export const UsdPerImage = z.union([
  UsdEach,
  z
    .record(ImageKey, UsdEach)
    .refine((prices) => Object.keys(prices).length > 0, "has no price: name a size, such as 1024x1024")
    .refine(
      (prices) => Object.keys(prices).length <= IMAGE_PRICES_MAX,
      `must have at most ${IMAGE_PRICES_MAX} entries`,
    ),
]);

export const Price = z.strictObject({
  /** Part of the lowercased model id. */
  match: z.string().trim().min(1).max(128),
  /** Both or neither of these two. */
  input: UsdPerMillion.optional(),
  output: UsdPerMillion.optional(),
  ...PriceParts.shape,
  per_call: UsdEach.optional(),
  per_image: UsdPerImage.optional(),
  /** Of transcribed sound. */
  per_second: UsdEach.optional(),
  per_million_characters: UsdPerMillion.optional(),
  /** The most tokens of one answer, reasoning included. */
  max_output_tokens: Tokens.optional(),
  /** The most tokens of prompt and answer together. */
  context_window: Tokens.optional(),
});
export type Price = z.infer<typeof Price>;

/** Rates by other units than the token. */
export const UNIT_RATES = ["per_call", "per_image", "per_second", "per_million_characters"] as const;

/** Checks that a price has both token rates, or none and a rate by another unit. */
export const requireRates =
  (suffix: "" | "_usd", ifNone: string) =>
  (price: object, context: z.RefinementCtx): void => {
    const has = (rate: string) => (price as Record<string, unknown>)[rate + suffix] !== undefined;
    const isByToken = has("input") || has("output");
    if (isByToken ? has("input") && has("output") : UNIT_RATES.some(has)) return;
    context.addIssue({
      code: "custom",
      path: [(has("input") ? "output" : "input") + suffix],
      message: `is missing: ${isByToken ? `\`input${suffix}\` and \`output${suffix}\` go together` : ifNone}`,
    });
  };

/** List prices of vendors. scripts/catalogue.ts writes the file, which names its source and date. */
export const BUILT_IN_PRICES: readonly Price[] = catalogue.prices;
