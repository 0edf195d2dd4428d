import type { ImagePrices, Price } from "./price-schema.ts";

/** What work other than chats and vectors is priced by. */
export type WorkUnit = "call" | "image" | "second" | "character";

/** The upstream decides, so the dearest price may apply. */
export const ANY = "auto";

export interface ImageLook {
  size: string | null;
  quality: string | null;
}

export interface UnitPrice {
  unit: WorkUnit;
  /** US dollars for one; of an image, by its look. */
  usd(look?: ImageLook): number;
}

const CHARACTERS = 1_000_000;
const NO_LOOK: ImageLook = { size: null, quality: null };

const PRICES: readonly { unit: WorkUnit; of(price: Price): UnitPrice["usd"] | null }[] = [
  { unit: "image", of: ({ per_image }) => forEach(per_image, (look) => imageUsd(per_image!, look)) },
  { unit: "second", of: ({ per_second }) => forEach(per_second, () => per_second!) },
  { unit: "character", of: ({ per_million_characters: usd }) => forEach(usd, () => usd! / CHARACTERS) },
  { unit: "call", of: ({ per_call }) => forEach(per_call, () => per_call!) },
];

const forEach = (given: unknown, usd: (look: ImageLook) => number): UnitPrice["usd"] | null =>
  given === undefined ? null : (look = NO_LOOK) => usd(look);

/** What the price says about any of these units; a price for each call is the last choice. */
export function unitPrice(price: Price, units: readonly WorkUnit[]): UnitPrice | null {
  for (const { unit, of } of PRICES) {
    const usd = units.includes(unit) ? of(price) : null;
    if (usd) return { unit, usd };
  }
  return null;
}

export type UnitRates = Pick<Price, "per_call" | "per_image" | "per_second" | "per_million_characters">;

export const isPerUnit = (price: UnitRates): boolean => PRICES.some(({ of }) => of(price as Price) !== null);

const isSize = (word: string): boolean => /^\d+x\d+$/.test(word);

/** The price whose key says most about the look; the dearest where the look or the keys leave it open. */
function imageUsd(prices: ImagePrices, { size, quality }: ImageLook): number {
  if (typeof prices === "number") return prices;
  const all = Object.entries(prices).map(([key, usd]) => ({ words: key.split("/"), usd }));
  const fits = (word: string): boolean => {
    const said = isSize(word) ? size : quality;
    return said === ANY || said === word;
  };
  const fitting = all.filter(({ words }) => words.every(fits));
  const isOpen = size === ANY || quality === ANY;
  const most = Math.max(0, ...fitting.map(({ words }) => words.length));
  const possible = isOpen ? fitting : fitting.filter(({ words }) => words.length === most);
  return Math.max(...(possible.length > 0 ? possible : all).map(({ usd }) => usd));
}
