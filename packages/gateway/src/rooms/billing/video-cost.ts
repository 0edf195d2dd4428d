import { z } from "zod";

export const VideoMode = z.enum(["per_call", "per_second_resolution", "per_frame"]);

export const VideoPrice = z.object({
  model: z.string(),
  mode: VideoMode,
  base_price: z.number(),
  price_per_second: z.number(),
  price_per_frame: z.number(),
  /** Short side in pixels to multiplier; `*` is for sizes below the smallest key, and for unknown sizes. */
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
  /** Candidates for the short side, in pixels; the dearest counts. Empty: the size is unknown, and `*` counts. */
  shortSides: readonly number[];
  /** The size could not be parsed: the highest coefficient applies. */
  sizeUnclear: boolean;
}

const NANO = 1e9;
const MILLI = 1e3;
const MICRO = 1e6;

/** `a * b / divisor`, halves rounded up, without leaving the integers. */
const scaled = (factors: readonly number[], divisor: number): number => {
  const product = factors.reduce((total, factor) => total * BigInt(Math.round(factor)), 1n);
  return Number((product + BigInt(divisor) / 2n) / BigInt(divisor));
};

const FALLBACK_KEY = "*";

/** The coefficient of a short side: below the smallest key the fallback, else the key above. 1088 pays for 1080. */
function coefficientOf(coefficients: VideoPrice["resolution_coeff"], side: number): number {
  const keys = Object.keys(coefficients).filter((key) => key !== FALLBACK_KEY);
  const sides = keys.map(Number).sort((a, b) => a - b);
  const fallback = coefficients[FALLBACK_KEY] ?? 1;
  if (sides.length === 0 || side < sides[0]!) return fallback;
  return coefficients[String(sides.find((key) => key >= side) ?? sides.at(-1))] ?? fallback;
}

function dearestCoefficient(
  coefficients: VideoPrice["resolution_coeff"],
  { shortSides, sizeUnclear }: VideoSize,
): number {
  const fallback = coefficients[FALLBACK_KEY] ?? 1;
  if (sizeUnclear) return Math.max(fallback, ...Object.values(coefficients));
  if (shortSides.length === 0) return fallback;
  return Math.max(...shortSides.map((side) => coefficientOf(coefficients, side)));
}

export function videoCostNanoUsd(price: Omit<VideoPrice, "model">, size: VideoSize): number {
  const base = Math.round(price.base_price * NANO);
  switch (price.mode) {
    case "per_call":
      return base * size.clips;
    case "per_frame":
      return (base + scaled([size.frames, price.price_per_frame * NANO], 1)) * size.clips;
    case "per_second_resolution": {
      const coefficient = dearestCoefficient(price.resolution_coeff, size);
      const seconds = scaled(
        [size.durationSeconds * MILLI, price.price_per_second * NANO, coefficient * MICRO],
        MILLI * MICRO,
      );
      return (base + seconds) * size.clips;
    }
  }
}
