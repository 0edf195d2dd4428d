/**
 * The arithmetic of a charge, in integers throughout.
 *
 * A cost of n nano-dollars times points a dollar times a multiplier in millionths is a whole number of
 * 10^-15 points ("femto-points"), so nothing is ever lost to rounding: an account is charged whole points and
 * carries the difference, which lies within half a point either way.
 */
export const FEMTO_PER_POINT = 1_000_000_000_000_000;
const HALF_POINT = FEMTO_PER_POINT / 2;
const FEMTO_PER_POINT_BIG = BigInt(FEMTO_PER_POINT);
const EXACT_MAX = BigInt(Number.MAX_SAFE_INTEGER);

export interface ExactPoints {
  points: number;
  femto: number;
}

interface Holding {
  balance: number;
  /** What the account still owes (positive) or has paid ahead (negative), in femto-points. */
  remainder: number;
}

/** Null when the amount is beyond what any account can hold. */
export function exactPoints(cost: {
  costNanoUsd: bigint;
  pointsPerUsd: number;
  multiplierMicros: number;
}): ExactPoints | null {
  const { costNanoUsd, pointsPerUsd, multiplierMicros } = cost;
  if (costNanoUsd > EXACT_MAX) return null;
  const product = Number(costNanoUsd) * pointsPerUsd * multiplierMicros;
  if (product <= Number.MAX_SAFE_INTEGER) {
    // Still exact as a number, which is faster than a BigInt; so is a division without remainder.
    const rest = product % FEMTO_PER_POINT;
    return { points: (product - rest) / FEMTO_PER_POINT, femto: rest };
  }
  const femto = costNanoUsd * BigInt(pointsPerUsd) * BigInt(multiplierMicros);
  const points = femto / FEMTO_PER_POINT_BIG;
  if (points >= EXACT_MAX) return null;
  return { points: Number(points), femto: Number(femto % FEMTO_PER_POINT_BIG) };
}

/**
 * Charges `exact` as far as the holding reaches: the points to take, those of them that the account lacks, and what
 * it holds afterwards. A charge that rounds to nothing still needs something to draw on.
 */
export function charge({ balance, remainder }: Holding, exact: ExactPoints) {
  const owedFemto = remainder + exact.femto;
  const extra = owedFemto >= HALF_POINT ? 1 : 0;
  const points = exact.points + extra;
  const taken = Math.min(points, balance);
  return {
    points,
    owed: points - taken,
    balance: balance - taken,
    remainder: owedFemto - extra * FEMTO_PER_POINT,
    isCovered: points > 0 ? balance >= points : balance > 0 || owedFemto <= 0,
  };
}
