import catalogue from "./catalogue.json" with { type: "json" };
import type { PriceParts } from "./price-schema.ts";

/** One price for every image, or prices by quality, size, or both: `hd`, `1024x1024`, `hd/1024x1024`. */
export type ImagePrices = number | Readonly<Record<string, number>>;

/** USD per million tokens. */
export interface Price extends PriceParts {
  /** Part of the lowercased model id. */
  match: string;
  /** Both or neither. */
  input?: number;
  output?: number;
  /** US dollars for each request, image, second of sound, or million characters. */
  per_call?: number;
  per_image?: ImagePrices;
  per_second?: number;
  per_million_characters?: number;
  /** The most tokens that one answer may have, reasoning included. */
  max_output_tokens?: number;
  /** The most tokens of prompt and answer together. */
  context_window?: number;
}

/** What vendors ask, from a file that scripts/catalogue.ts makes; it names its source and its date. */
export const BUILT_IN_PRICES: readonly Price[] = catalogue.prices;
