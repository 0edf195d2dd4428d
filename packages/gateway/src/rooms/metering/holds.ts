import type { Clock } from "../../kernel/clock.ts";

/** A hold that nobody ended is given back after this long. */
export const HOLD_TTL_MS = 15 * 60_000;
const SWEEP_EVERY_MS = 5_000;
/** More requests than this are never under way; past it the oldest hold makes room. */
const HOLDS_MAX = 200_000;

/** Something reserved for a request that is under way. */
export interface Hold {
  expiresAtMs: number;
  /** Gives back what was reserved. */
  end: () => void;
}

/** Holds in the order in which they were taken; each ends once. */
export class Holds {
  readonly #open = new Set<Hold>();
  readonly #endSweeping: () => void;

  constructor(readonly clock: Clock) {
    this.#endSweeping = clock.every(SWEEP_EVERY_MS, () => this.#sweep());
  }

  get size(): number {
    return this.#open.size;
  }

  take(end: () => void): Hold {
    if (this.#open.size >= HOLDS_MAX) this.end(this.#open.values().next().value!);
    const hold: Hold = { expiresAtMs: this.clock.now() + HOLD_TTL_MS, end };
    this.#open.add(hold);
    return hold;
  }

  /** Gives back what was reserved; false when it was given back before. */
  end(hold: Hold): boolean {
    if (!this.#open.delete(hold)) return false;
    hold.end();
    return true;
  }

  #sweep(): void {
    const nowMs = this.clock.now();
    for (const hold of this.#open) {
      // A clock that was set back must not make a hold live longer than from now on.
      hold.expiresAtMs = Math.min(hold.expiresAtMs, nowMs + HOLD_TTL_MS);
      if (hold.expiresAtMs <= nowMs) this.end(hold);
    }
  }

  close(): void {
    this.#endSweeping();
  }
}
