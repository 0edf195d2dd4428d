import { MULTIPLIER_ONE } from "../../kernel/payer.ts";

/** A billionth of a point: fine enough that the cost of any request is a whole number of them. */
export const NANO_PER_POINT = 1e9;

/** What a cost takes from an account, as exactly as a number can say it. */
export const exactNanoPoints = (
  costNanoUsd: number,
  multiplierMicros: number,
  pointsPerUsd: number,
): number => costNanoUsd * pointsPerUsd * (multiplierMicros / MULTIPLIER_ONE);

/** The same rounded up: a reservation may be too large, never too small. */
export const nanoPoints = (costNanoUsd: number, multiplierMicros: number, pointsPerUsd: number): number =>
  // The binary fraction of a multiplier may lie a hair above a whole number; that is not one more.
  Math.ceil(exactNanoPoints(costNanoUsd, multiplierMicros, pointsPerUsd) - 0.001);
