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
  // A multiplier's floating-point error can land just above a whole number; that must not round up.
  Math.ceil(exactNanoPoints(costNanoUsd, multiplierMicros, pointsPerUsd) - 0.001);
