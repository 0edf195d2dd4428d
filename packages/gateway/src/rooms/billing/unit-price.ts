import type { Price } from "./price-schema.ts";

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

export type UnitRates = Pick<Price, "per_call" | "per_image" | "per_second" | "per_million_characters">;

/** A price for each call is the last choice. */
const RATES: readonly [unit: WorkUnit, rate: keyof UnitRates, per: number][] = [
  ["image", "per_image", 1],
  ["second", "per_second", 1],
  ["character", "per_million_characters", CHARACTERS],
  ["call", "per_call", 1],
];

/** What the price says about any of these units. */
export function unitPrice(price: Price, units: readonly WorkUnit[]): UnitPrice | null {
  for (const [unit, rate, per] of RATES) {
    const usd = price[rate];
    if (usd === undefined || !units.includes(unit)) continue;
    return { unit, usd: (look = NO_LOOK) => (typeof usd === "number" ? usd / per : imageUsd(usd, look)) };
  }
  return null;
}

export const isPerUnit = (price: UnitRates): boolean => RATES.some(([, rate]) => price[rate] !== undefined);

const isSize = (word: string): boolean => /^\d+x\d+$/.test(word);

/** The price whose key says most about the look; the dearest where the look or the keys leave it open. */
function imageUsd(prices: Readonly<Record<string, number>>, { size, quality }: ImageLook): number {
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
