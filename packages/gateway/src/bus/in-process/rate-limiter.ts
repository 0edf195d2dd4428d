import type { Clock } from "../../kernel/clock.ts";
import type { RateLimiter } from "../contract.ts";

const KEYS_MAX = 50_000;
/** Keys kept after an eviction; evicting one at a time would add work to every request. */
const KEYS_KEPT = 45_000;
/** Up to this limit each hit is remembered with its time; beyond it hits that come close together share one. */
const TIMES_MAX = 1024;
const TIMES_AT_FIRST = 8;

/** The times of hits that still count, oldest first, as a ring. */
class Window {
  #times = new Float64Array(TIMES_AT_FIRST);
  #counts = new Uint32Array(TIMES_AT_FIRST);
  #oldest = 0;
  #size = 0;
  #hits = 0;
  /** When the newest entry began; its time is that of its last hit. */
  #newestBeganMs = Number.NEGATIVE_INFINITY;

  constructor(readonly windowMs: number) {}

  hit(limit: number, nowMs: number): number {
    this.#forgetPast(nowMs);
    // The limit may have been lowered meanwhile: then more than one entry has to pass.
    if (this.#hits >= limit) return this.#times[this.#oldest]! + this.windowMs - nowMs;
    this.#hits++;
    const isShared = limit > TIMES_MAX && nowMs - this.#newestBeganMs < this.windowMs / TIMES_MAX;
    if (isShared && this.#size > 0) {
      const newest = this.#at(this.#size - 1);
      this.#times[newest] = nowMs;
      this.#counts[newest]!++;
    } else this.#add(nowMs);
    return 0;
  }

  isPast(nowMs: number): boolean {
    this.#forgetPast(nowMs);
    return this.#size === 0;
  }

  /** Hits in the future do not count either: a clock that was set back must not lock anyone out. */
  #forgetPast(nowMs: number): void {
    while (this.#size > 0) {
      const ageMs = nowMs - this.#times[this.#oldest]!;
      if (ageMs >= 0 && ageMs < this.windowMs) return;
      this.#hits -= this.#counts[this.#oldest]!;
      this.#oldest = this.#at(1);
      this.#size--;
    }
  }

  #at(index: number): number {
    return (this.#oldest + index) & (this.#times.length - 1);
  }

  #add(nowMs: number): void {
    if (this.#size === this.#times.length) this.#grow();
    const end = this.#at(this.#size++);
    this.#times[end] = nowMs;
    this.#counts[end] = 1;
    this.#newestBeganMs = nowMs;
  }

  /** To a power of two again, which makes the ring's arithmetic cheap. */
  #grow(): void {
    const times = new Float64Array(this.#size * 2);
    const counts = new Uint32Array(this.#size * 2);
    for (let i = 0; i < this.#size; i++) {
      times[i] = this.#times[this.#at(i)]!;
      counts[i] = this.#counts[this.#at(i)]!;
    }
    this.#times = times;
    this.#counts = counts;
    this.#oldest = 0;
  }
}

/**
 * A sliding log. Exact: within no window are more hits counted than the limit. A key costs as much memory as it
 * is used, and never more than for 2,048 hits: with a limit above 1,024 a hit may be forgotten late by a
 * thousandth of the window.
 */
export class InProcessRateLimiter implements RateLimiter {
  #windows = new Map<string, Window>();
  constructor(readonly clock: Clock) {}

  hit(key: string, limit: number, windowMs: number): number {
    if (limit <= 0) return windowMs;
    const nowMs = this.clock.now();
    let window = this.#windows.get(key);
    if (!window) {
      if (this.#windows.size >= KEYS_MAX) this.#makeRoom(nowMs);
      window = new Window(windowMs);
      this.#windows.set(key, window);
    }
    return window.hit(limit, nowMs);
  }

  #makeRoom(nowMs: number): void {
    for (const [key, window] of this.#windows) if (window.isPast(nowMs)) this.#windows.delete(key);
    // Every key is active: the oldest lose their history, so that memory stays bounded.
    for (const key of this.#windows.keys()) {
      if (this.#windows.size <= KEYS_KEPT) break;
      this.#windows.delete(key);
    }
  }
}
