const KEYS_MAX = 50_000;
/** Keys kept after an eviction; evicting one at a time would add work to every request. */
const KEYS_KEPT = 45_000;
/** Up to this limit each hit is remembered with its time; beyond it hits that come close together share one. */
const TIMES_MAX = 1024;
const TIMES_AT_FIRST = 8;

/** The times of hits that still count, in the order in which they were counted, as a ring. */
export class Window {
  /** Of each entry its time and then its hits, next to each other: keys are many, and seldom in the processor's caches. */
  #entries = new Float64Array(2 * TIMES_AT_FIRST);
  /** Where the oldest entry stands. */
  #oldest = 0;
  #size = 0;
  #hits = 0;
  /** When the newest entry began; its time is that of its last hit. */
  #newestBeganMs = Number.NEGATIVE_INFINITY;

  constructor(readonly windowMs: number) {}

  hit(limit: number, nowMs: number): number {
    return this.count(1, limit, nowMs) === 1 ? 0 : this.waitMs(nowMs);
  }

  /** Counts as many of the hits as the limit allows. */
  count(hits: number, limit: number, nowMs: number): number {
    this.#forgetPast(nowMs);
    const counted = Math.min(hits, limit - this.#hits);
    if (counted <= 0) return 0;
    this.#hits += counted;
    const isShared = limit > TIMES_MAX && nowMs - this.#newestBeganMs < this.windowMs / TIMES_MAX;
    if (isShared && this.#size > 0) {
      const newest = this.#at(this.#size - 1);
      this.#entries[newest] = nowMs;
      this.#entries[newest + 1]! += counted;
    } else {
      this.#add(nowMs, counted);
      this.#newestBeganMs = nowMs;
    }
    return counted;
  }

  /** After a hit that was not counted. The limit may have been lowered meanwhile: then more than one entry has to pass. */
  waitMs(nowMs: number): number {
    return Math.min(this.oldestMs + this.windowMs - nowMs, this.windowMs);
  }

  /** How many more hits the limit allows. */
  left(limit: number): number {
    return limit - this.#hits;
  }

  /** Counts hits that have no time yet. */
  protected countAhead(hits: number): void {
    this.#hits += hits;
  }

  /** Of hits that were counted ahead, so many were used, at this time at the latest. */
  protected endAhead(hits: number, used: number, atMs: number): void {
    this.#hits -= hits - used;
    if (used > 0) this.#add(atMs, used);
  }

  protected get hasRoom(): boolean {
    return this.#size < 2 * TIMES_MAX;
  }

  /** When the oldest hit was counted. */
  protected get oldestMs(): number {
    return this.#size > 0 ? this.#entries[this.#oldest]! : Number.POSITIVE_INFINITY;
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

  /** Behind everything that is not younger. */
  #add(timeMs: number, hits: number): void {
    if (2 * this.#size === this.#entries.length) this.#grow();
    let at = this.#at(this.#size);
    for (let index = this.#size++; index > 0; index--) {
      const before = this.#at(index - 1);
      if (this.#entries[before]! <= timeMs) break;
      this.#entries.copyWithin(at, before, before + 2);
      at = before;
    }
    this.#entries[at] = timeMs;
    this.#entries[at + 1] = hits;
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
export class Windows<W extends Window> {
  readonly #windows = new Map<string, W>();

  constructor(readonly create: (windowMs: number) => W) {}

  of(key: string, windowMs: number, nowMs: number): W {
    let window = this.#windows.get(key);
    if (!window) {
      if (this.#windows.size >= KEYS_MAX) this.#makeRoom(nowMs);
      window = this.create(windowMs);
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
