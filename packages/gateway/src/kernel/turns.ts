/** Long work is split up, so that no turn of the event loop takes 20 ms; tests/cluster/turns measures it. */

/** Larger bodies are parsed over several turns. */
export const LARGE_BODY_BYTES = 256 * 1024;

/** Resolves in the next turn of the event loop, after everything else that is ready. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const STEP_MS = 5;

/** Maps the values, yielding to the event loop every few milliseconds. */
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
