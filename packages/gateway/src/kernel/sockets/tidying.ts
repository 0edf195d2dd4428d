import { fullGC, heapSize } from "bun:jsc";

/**
 * What requests leave behind is old to the collector as soon as it has survived one of its quick rounds, and many
 * are under way at any time. Left to itself it lets that pile up to several times what is in use before it looks
 * at everything, and then it takes the longer. So it is asked to look earlier: when about as much was left behind
 * as is in use, which keeps the cost a request the same, however large the process is.
 */
const LEFT_BYTES_PER_ARRIVAL = 1_500;
const ARRIVALS_MIN = 20_000;

let arrivals = 0;
let arrivalsMax = ARRIVALS_MIN;

/** Called between two turns of the event loop, when the least is in use. */
export function tidyAfter(count: number): void {
  arrivals += count;
  if (arrivals < arrivalsMax) return;
  arrivals = 0;
  fullGC();
  arrivalsMax = Math.max(ARRIVALS_MIN, heapSize() / LEFT_BYTES_PER_ARRIVAL);
}
