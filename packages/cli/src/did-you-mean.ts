/** How many letters must be added, dropped, changed or swapped with their neighbour. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = rows[i - 1]![j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwapped ? rows[i - 2]![j - 2]! + 1 : changed;
      row.push(Math.min(changed, swapped, rows[i - 1]![j]! + 1, row[j - 1]! + 1));
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}

/** Of a short word one letter may be wrong, of a longer one a third. */
const mistakesMax = (word: string) => Math.max(1, Math.floor(word.length / 3));
const WORD_LENGTH_MAX = 64;

/** `; did you mean "keys"?`, or nothing when no known word is near. */
export function didYouMean(word: string, known: readonly string[]): string {
  if (word.length > WORD_LENGTH_MAX) return "";
  const near = known
    .map((candidate) => ({ candidate, mistakes: distance(word, candidate) }))
    .filter(({ candidate, mistakes }) => mistakes <= mistakesMax(word) || candidate.startsWith(word))
    .sort((a, b) => a.mistakes - b.mistakes)[0];
  return near ? `; did you mean "${near.candidate}"?` : "";
}
