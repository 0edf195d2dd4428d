/** Long work is done in steps, so that no request keeps the others waiting for 20 ms. tests/cluster/turns shows it. */

/** Larger bodies are read in steps. */
export const LARGE_BODY_BYTES = 256 * 1024;

/** Resolves when everything else that is ready has had its turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const STEP_MS = 5;

/** What `work` makes of each. The others have their turn whenever it has taken a while: one is short, all may be long. */
export async function inSteps<T, Made>(values: readonly T[], work: (value: T) => Made): Promise<Made[]> {
  const made: Made[] = [];
  let sinceMs = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (performance.now() - sinceMs > STEP_MS) {
      await nextTurn();
      sinceMs = performance.now();
    }
    made.push(work(value));
  }
  return made;
}
