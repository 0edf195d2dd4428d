import { z } from "zod";

export const VideoMode = z.enum(["per_call", "per_second_resolution", "per_frame"]);

export const VideoPrice = z.object({
  model: z.string(),
  mode: VideoMode,
  base_price: z.number(),
  price_per_second: z.number(),
  price_per_frame: z.number(),
  /** Multipliers by the short side in pixels; `*` is for sizes below the smallest one, and for unknown sizes. */
  resolution_coeff: z.record(z.string(), z.number()),
  currency: z.string(),
  enabled: z.boolean(),
});
export type VideoPrice = z.output<typeof VideoPrice>;

export const FALLBACK_VIDEO_PRICE: Omit<VideoPrice, "model"> = {
  mode: "per_second_resolution",
  base_price: 0,
  price_per_second: 0.005,
  price_per_frame: 0,
  resolution_coeff: { "*": 1 },
  currency: "USD",
  enabled: true,
};

export interface VideoSize {
  durationSeconds: number;
  frames: number;
  clips: number;
  /** Possible short sides in pixels; the most expensive one counts. Empty: the size is unknown, so `*` counts. */
  shortSides: readonly number[];
  /** The size could not be parsed, so the highest coefficient applies. */
  sizeUnclear: boolean;
}

const NANO = 1e9;
const MILLI = 1e3;
const MICRO = 1e6;

/** The factors' product divided by `divisor`, in integers; halves are rounded up. */
const scaled = (factors: readonly number[], divisor: number): number => {
  const product = factors.reduce((total, factor) => total * BigInt(Math.round(factor)), 1n);
  return Number((product + BigInt(divisor) / 2n) / BigInt(divisor));
};

/** A side between two keys has the coefficient of the larger key, one above the largest key that of the largest. */
function coefficientOf(
  { "*": fallback = 1, ...bySide }: VideoPrice["resolution_coeff"],
  { shortSides, sizeUnclear }: VideoSize,
): number {
  if (sizeUnclear) return Math.max(fallback, ...Object.values(bySide));
  if (shortSides.length === 0) return fallback;
  const keys = Object.keys(bySide)
    .map(Number)
    .sort((a, b) => a - b);
  const ofSide = (side: number): number => {
    const isBelow = keys.length === 0 || side < keys[0]!;
    return isBelow ? fallback : bySide[keys.find((key) => key >= side) ?? keys.at(-1)!]!;
  };
  return Math.max(...shortSides.map(ofSide));
}

export function videoCostNanoUsd(price: Omit<VideoPrice, "model">, size: VideoSize): number {
  const base = Math.round(price.base_price * NANO);
  switch (price.mode) {
    case "per_call":
      return base * size.clips;
    case "per_frame":
      return (base + scaled([size.frames, price.price_per_frame * NANO], 1)) * size.clips;
    case "per_second_resolution": {
      const coefficient = coefficientOf(price.resolution_coeff, size);
      const seconds = scaled(
        [size.durationSeconds * MILLI, price.price_per_second * NANO, coefficient * MICRO],
        MILLI * MICRO,
      );
      return (base + seconds) * size.clips;
    }
  }
}
