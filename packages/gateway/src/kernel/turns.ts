/**
 * Work that takes long is done in steps, between which other requests have their turn: nothing that one request asks
 * for may keep the others waiting for more than 50 ms. bench/stalls.ts measures it.
 */

/** Larger bodies are read in steps. */
export const LARGE_BODY_BYTES = 256 * 1024;

/** Resolves when everything else that is ready has had its turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
