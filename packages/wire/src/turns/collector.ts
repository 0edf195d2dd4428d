import { edenGC, fullGC, heapSize } from "bun:jsc";

/**
 * When garbage is collected. On its own schedule the collector lets the heap of a busy server grow to several times
 * what is live, and then runs in the middle of a turn: objects of that turn survive, are promoted to the old
 * generation, and take a full GC to free. Between two turns the least is live.
 */
const MINOR_GC_AFTER_BYTES = 24 * 1024 * 1024;
/**
 * A full GC marks everything that is live, some 25 ms in which nobody is served, and drops code that then has to be
 * compiled again. It waits until the minor ones have let this much through.
 */
const FULL_GC_AFTER_GROWTH_BYTES = 16 * 1024 * 1024;

/** Measured averages of the garbage that a read from a socket and the head of a request or response leave. */
const GARBAGE_PER_ARRIVAL_BYTES = 2_000;
const GARBAGE_PER_HEAD_BYTES = 16_000;

let sinceMinorBytes = 0;
/** Heap after the latest full GC; the first one comes early, because this is not known before. */
let liveBytes = 0;
let heads = 0;

/** Counts the head of a request or response, and with it all that is allocated for one. */
export function headRead(): void {
  heads++;
}

/** Called at the end of a turn. */
export function collectAfter(arrivals: number): void {
  const garbageBytes = arrivals * GARBAGE_PER_ARRIVAL_BYTES + heads * GARBAGE_PER_HEAD_BYTES;
  heads = 0;
  sinceMinorBytes += garbageBytes;
  if (sinceMinorBytes < MINOR_GC_AFTER_BYTES) return;
  sinceMinorBytes = 0;
  edenGC();
  if (heapSize() < liveBytes + FULL_GC_AFTER_GROWTH_BYTES) return;
  fullGC();
  liveBytes = heapSize();
}
