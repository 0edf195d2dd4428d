import { edenGC, fullGC, heapSize } from "bun:jsc";

/**
 * When garbage is collected. On its own schedule the collector lets the heap of a busy server grow to several times
 * what is live, and then runs in the middle of a turn: objects of that turn survive, are promoted to the old
 * generation, and take a full GC to free. Between two turns the least is live.
 */
const MINOR_GC_AFTER_BYTES = 16 * 1024 * 1024;
/** A full GC takes longer the more is live, so a larger heap waits longer for it. */
const FULL_GC_AFTER_BYTES_MIN = 64 * 1024 * 1024;
const FULL_GC_AFTER_HEAPS = 3;

/** Measured averages of the garbage that a read from a socket and the head of a request or response leave. */
const GARBAGE_PER_ARRIVAL_BYTES = 2_000;
const GARBAGE_PER_HEAD_BYTES = 8_000;

let sinceMinorBytes = 0;
let sinceFullBytes = 0;
let fullGcAfterBytes = FULL_GC_AFTER_BYTES_MIN;
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
  sinceFullBytes += garbageBytes;
  if (sinceFullBytes >= fullGcAfterBytes) {
    sinceFullBytes = 0;
    sinceMinorBytes = 0;
    fullGC();
    fullGcAfterBytes = Math.max(FULL_GC_AFTER_BYTES_MIN, heapSize() * FULL_GC_AFTER_HEAPS);
  } else if (sinceMinorBytes >= MINOR_GC_AFTER_BYTES) {
    sinceMinorBytes = 0;
    edenGC();
  }
}
