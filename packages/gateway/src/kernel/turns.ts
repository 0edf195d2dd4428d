/** Long work is done in steps, so that no request keeps the others waiting for 20 ms. tests/cluster/turns shows it. */

/** Larger bodies are read in steps. */
export const LARGE_BODY_BYTES = 256 * 1024;

/** Resolves when everything else that is ready has had its turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
