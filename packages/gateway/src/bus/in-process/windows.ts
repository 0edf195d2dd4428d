const KEYS_MAX = 50_000;
/** Keys kept after an eviction; evicting one at a time would add work to every request. */
const KEYS_KEPT = 45_000;
/** Up to this limit each hit is remembered with its time; beyond it hits that come close together share one. */
const TIMES_MAX = 1024;

/**
 * A sliding log: the times of hits that still count, oldest first. Exact: within no window are more hits counted than
 * the limit. A key costs as much memory as it is used, and never more than for 2,048 hits: with a limit above 1,024 a
 * hit may be forgotten late by a thousandth of the window.
 */
class Window {
  readonly #times: number[] = [];
  /** How many hits share each time. */
  readonly #shares: number[] = [];
  #hits = 0;
  /** When the newest entry began; its time is that of its last hit. */
  #newestBeganMs = Number.NEGATIVE_INFINITY;

  constructor(readonly windowMs: number) {}

  /** Returns 0 when it was counted, otherwise the milliseconds after which the next one may be. */
  hit(max: number, nowMs: number): number {
    const isShared = max > TIMES_MAX && nowMs - this.#newestBeganMs < this.windowMs / TIMES_MAX;
    const hasNewest = !this.isPast(nowMs);
    // The limit may have been lowered meanwhile: then more than one entry has to pass.
    if (this.#hits >= max) return Math.min(this.#times[0]! + this.windowMs - nowMs, this.windowMs);
    this.#hits++;
    if (isShared && hasNewest) {
      const newest = this.#times.length - 1;
      this.#times[newest] = nowMs;
      this.#shares[newest]!++;
    } else {
      this.#times.push(nowMs);
      this.#shares.push(1);
      this.#newestBeganMs = nowMs;
    }
    return 0;
  }

  /** Forgets what no longer counts; true when nothing is left. */
  isPast(nowMs: number): boolean {
    let past = 0;
    while (past < this.#times.length && nowMs - this.#times[past]! >= this.windowMs) past++;
    if (past > 0) {
      this.#times.splice(0, past);
      for (const hits of this.#shares.splice(0, past)) this.#hits -= hits;
    }
    return this.#times.length === 0;
  }
}

/** The windows of many keys, of which the oldest are forgotten so that memory stays bounded. */
export class Windows {
  readonly #windows = new Map<string, Window>();

  of(key: string, windowMs: number, nowMs: number): Window {
    let window = this.#windows.get(key);
    if (!window) {
      if (this.#windows.size >= KEYS_MAX) this.#makeRoom(nowMs);
      window = new Window(windowMs);
      this.#windows.set(key, window);
    }
    return window;
  }

  #makeRoom(nowMs: number): void {
    for (const [key, window] of this.#windows) if (window.isPast(nowMs)) this.#windows.delete(key);
    // Every key is active: the oldest lose their history.
    for (const key of this.#windows.keys()) {
      if (this.#windows.size <= KEYS_KEPT) break;
      this.#windows.delete(key);
    }
  }
}
