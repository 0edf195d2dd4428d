import { edenGC, fullGC, heapSize } from "bun:jsc";

/**
 * When the collector is asked to work. Left to itself it lets the heap of a busy gateway grow to several times what
 * is in use, and then comes in the middle of a turn: what that turn is using survives, counts as old from then on,
 * and is only found again by a look at everything. Between two turns the least is in use.
 */
const QUICK_LOOK_AFTER_BYTES = 16 * 1024 * 1024;
/** A look at everything takes the longer the more is in use, so it comes the later. */
const FULL_LOOK_AFTER_BYTES_MIN = 64 * 1024 * 1024;
const FULL_LOOK_AFTER_HEAPS = 3;

/** What is left behind, as measured: by each read from a socket, and by the head of a request or an answer. */
const LEFT_BY_ARRIVAL_BYTES = 2_000;
const LEFT_BY_HEAD_BYTES = 8_000;

let sinceQuickBytes = 0;
let sinceFullBytes = 0;
let fullLookAfterBytes = FULL_LOOK_AFTER_BYTES_MIN;
let heads = 0;

/** A request or an answer begins, and with it everything that is made for one. */
export function headRead(): void {
  heads++;
}

/** Called at the end of a turn that handled so many arrivals. */
export function tidyAfter(arrivals: number): void {
  const leftBytes = arrivals * LEFT_BY_ARRIVAL_BYTES + heads * LEFT_BY_HEAD_BYTES;
  heads = 0;
  sinceQuickBytes += leftBytes;
  sinceFullBytes += leftBytes;
  if (sinceFullBytes >= fullLookAfterBytes) {
    sinceFullBytes = 0;
    sinceQuickBytes = 0;
    fullGC();
    fullLookAfterBytes = Math.max(FULL_LOOK_AFTER_BYTES_MIN, heapSize() * FULL_LOOK_AFTER_HEAPS);
  } else if (sinceQuickBytes >= QUICK_LOOK_AFTER_BYTES) {
    sinceQuickBytes = 0;
    edenGC();
  }
}
