import { edenGC, fullGC, heapSize } from "bun:jsc";

/**
 * When the collector is asked to work. Left to itself it lets the heap of a busy gateway grow to several times what
 * is in use, and then comes in the middle of a turn: what that turn is using survives, counts as old from then on,
 * and is only found again by a look at everything. Between two turns the least is in use.
 */
const ARRIVALS_PER_QUICK_LOOK = 2_000;
/** A look at everything: when about as much was left behind as is in use, so that its share of the cost stays the same. */
const ARRIVALS_PER_FULL_LOOK_MIN = 20_000;
const LEFT_BYTES_PER_ARRIVAL = 1_500;

let sinceQuick = 0;
let sinceFull = 0;
let arrivalsPerFullLook = ARRIVALS_PER_FULL_LOOK_MIN;

/** Called at the end of a turn that handled so many arrivals. */
export function tidyAfter(arrivals: number): void {
  sinceQuick += arrivals;
  sinceFull += arrivals;
  if (sinceFull >= arrivalsPerFullLook) {
    sinceFull = 0;
    sinceQuick = 0;
    fullGC();
    arrivalsPerFullLook = Math.max(ARRIVALS_PER_FULL_LOOK_MIN, heapSize() / LEFT_BYTES_PER_ARRIVAL);
  } else if (sinceQuick >= ARRIVALS_PER_QUICK_LOOK) {
    sinceQuick = 0;
    edenGC();
  }
}
