import { Random } from "./random.ts";

/** What can happen to a process. */
export type ProcessFault = "kill" | "freeze" | "restart";
/** What can happen to the network between two of them. */
export type LineFault = "cut" | "stall" | "slow" | "half-open";
export type FaultKind = ProcessFault | LineFault | "fill" | "jump";

export interface Fault {
  kind: FaultKind;
  /** A name of the world's: a process, a line, a disk or the clock. */
  target: string;
  /** Quiet time before it. */
  pauseMs: number;
  /** How long it lasts. */
  holdMs: number;
  /** Of a jump of the clock. */
  byMs: number;
}

/** What a target can suffer. */
export type Targets = Readonly<Record<string, readonly FaultKind[]>>;

export interface Pace {
  pauseMsMax: number;
  holdMsMax: number;
}

const HOLD_MS_MIN = 300;
const JUMPS_MS = [-7_200_000, -3_600_000, -61_000, -2_000, 2_000, 61_000, 3_600_000, 7_200_000];

/** Faults one after the other, without end; the same seed, targets and pace give the same faults. */
export function* schedule(seed: number, targets: Targets, pace: Pace): Generator<Fault, never> {
  const random = new Random(seed);
  const all = Object.entries(targets).flatMap(([target, kinds]) => kinds.map((kind) => ({ target, kind })));
  // Every fault comes once before any comes again, so that a short run has most of them.
  let left: typeof all = [];
  for (;;) {
    if (left.length === 0) left = [...all];
    const [{ target, kind }] = left.splice(random.whole(0, left.length - 1), 1) as [(typeof all)[number]];
    yield {
      kind,
      target,
      pauseMs: random.whole(0, pace.pauseMsMax),
      holdMs: random.whole(HOLD_MS_MIN, Math.max(HOLD_MS_MIN, pace.holdMsMax)),
      byMs: kind === "jump" ? random.pick(JUMPS_MS) : 0,
    };
  }
}
