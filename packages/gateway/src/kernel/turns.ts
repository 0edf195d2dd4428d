/** Long work is done in steps, so that no request keeps the others waiting for 50 ms. bench/stalls.ts measures it. */

/** Larger bodies are read in steps. */
export const LARGE_BODY_BYTES = 256 * 1024;

/** Resolves when everything else that is ready has had its turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
