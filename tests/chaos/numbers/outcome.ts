/** What a measurement says, and whether it is what docs/reliability.md promises. */
export interface Outcome {
  lines: string[];
  isSound: boolean;
}

export const quantile = (values: readonly number[], share: number): number => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
};
