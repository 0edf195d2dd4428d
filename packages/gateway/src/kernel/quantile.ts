/** A quantile of a histogram whose buckets end at `bounds`, interpolated within its bucket. Null if it is empty. */
export function quantile(
  { counts, bounds }: { counts: readonly number[]; bounds: readonly number[] },
  share: number,
): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const rank = share * total;
  let below = 0;
  for (const [i, bound] of bounds.entries()) {
    const inside = counts[i] ?? 0;
    if (inside > 0 && below + inside >= rank) {
      const from = bounds[i - 1] ?? 0;
      return Math.round((from + ((bound - from) * (rank - below)) / inside) * 10_000) / 10_000;
    }
    below += inside;
  }
  return bounds.at(-1) ?? 0;
}
