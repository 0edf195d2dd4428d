const KEYS_MAX = 50_000;
/** Keys kept after an eviction; evicting one at a time would add work to every request. */
const KEYS_KEPT = 45_000;
/** Up to this limit each hit is remembered with its time; beyond it hits that come close together share one. */
const TIMES_MAX = 1024;
const TIMES_AT_FIRST = 8;

/**
 * A sliding log: the times of hits that still count, oldest first, as a ring. Exact: within no window are more hits
 * counted than the limit. A key costs as much memory as it is used, and never more than for 2,048 hits: with a limit
 * above 1,024 a hit may be forgotten late by a thousandth of the window.
 */
class Window {
  /** Interleaved [time, hits] pairs, so that one lookup touches one cache line. */
  #entries = new Float64Array(2 * TIMES_AT_FIRST);
  /** Where the oldest entry stands. */
  #oldest = 0;
  #size = 0;
  #hits = 0;
  /** When the newest entry began; its time is that of its last hit. */
  #newestBeganMs = Number.NEGATIVE_INFINITY;

  constructor(readonly windowMs: number) {}

  /** Returns 0 when it was counted, otherwise the milliseconds after which the next one may be. */
  hit(max: number, nowMs: number): number {
    this.#forgetPast(nowMs);
    // The limit may have been lowered meanwhile: then more than one entry has to pass.
    if (this.#hits >= max)
      return Math.min(this.#entries[this.#oldest]! + this.windowMs - nowMs, this.windowMs);
    this.#hits++;
    const isShared = max > TIMES_MAX && nowMs - this.#newestBeganMs < this.windowMs / TIMES_MAX;
    if (isShared && this.#size > 0) {
      const newest = this.#at(this.#size - 1);
      this.#entries[newest] = nowMs;
      this.#entries[newest + 1]!++;
    } else {
      this.#add(nowMs);
      this.#newestBeganMs = nowMs;
    }
    return 0;
  }

  isPast(nowMs: number): boolean {
    this.#forgetPast(nowMs);
    return this.#size === 0;
  }

  #forgetPast(nowMs: number): void {
    while (this.#size > 0) {
      if (nowMs - this.#entries[this.#oldest]! < this.windowMs) return;
      this.#hits -= this.#entries[this.#oldest + 1]!;
      this.#oldest = this.#at(1);
      this.#size--;
    }
  }

  #at(index: number): number {
    return (this.#oldest + 2 * index) & (this.#entries.length - 1);
  }

  #add(timeMs: number): void {
    if (2 * this.#size === this.#entries.length) this.#grow();
    const at = this.#at(this.#size++);
    this.#entries[at] = timeMs;
    this.#entries[at + 1] = 1;
  }

  /** To a power of two again, which makes the ring's arithmetic cheap. */
  #grow(): void {
    const entries = new Float64Array(2 * this.#entries.length);
    entries.set(this.#entries.subarray(this.#oldest));
    entries.set(this.#entries.subarray(0, this.#oldest), this.#entries.length - this.#oldest);
    this.#entries = entries;
    this.#oldest = 0;
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
