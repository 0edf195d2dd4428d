import { z } from "zod";

export const VideoMode = z.enum(["per_call", "per_second_resolution", "per_frame"]);

export interface VideoPrice {
  model: string;
  mode: z.output<typeof VideoMode>;
  base_price: number;
  price_per_second: number;
  price_per_frame: number;
  /** Short side in pixels to multiplier; `*` is for every other size. */
  resolution_coeff: Record<string, number>;
  currency: string;
  enabled: boolean;
}

/** What a model without a row of its own costs. */
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
  width: number;
  height: number;
  frames: number;
}

const NANO = 1e9;
const MILLI = 1e3;
const MICRO = 1e6;

/** `a * b / divisor`, halves rounded up, without leaving the integers. */
const scaled = (factors: readonly number[], divisor: number): number => {
  const product = factors.reduce((total, factor) => total * BigInt(Math.round(factor)), 1n);
  return Number((product + BigInt(divisor) / 2n) / BigInt(divisor));
};

/** Cost of one video in whole nanodollars. */
export function videoCostNanoUsd(price: Omit<VideoPrice, "model">, size: VideoSize): number {
  const base = Math.round(price.base_price * NANO);
  switch (price.mode) {
    case "per_call":
      return base;
    case "per_frame":
      return base + scaled([size.frames, price.price_per_frame * NANO], 1);
    case "per_second_resolution": {
      const shortSide = String(Math.min(size.width, size.height));
      const coefficient = price.resolution_coeff[shortSide] ?? price.resolution_coeff["*"] ?? 1;
      return (
        base +
        scaled(
          [size.durationSeconds * MILLI, price.price_per_second * NANO, coefficient * MICRO],
          MILLI * MICRO,
        )
      );
    }
  }
}
