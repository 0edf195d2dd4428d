import type { Clock } from "../../kernel/clock.ts";
import type { RateLimiter } from "../contract.ts";

const KEYS_MAX = 50_000;

/** The times of the last `limit` hits, as a ring. */
interface Window {
  times: Float64Array;
  next: number;
  windowMs: number;
}

/** A sliding log: exact, and as large as the limit, which is at most a few thousand. */
export class InProcessRateLimiter implements RateLimiter {
  #windows = new Map<string, Window>();
  constructor(readonly clock: Clock) {}

  hit(key: string, limit: number, windowMs: number): number {
    if (limit <= 0) return windowMs;
    const now = this.clock.now();
    let window = this.#windows.get(key);
    if (!window || window.times.length !== limit) {
      if (this.#windows.size >= KEYS_MAX) this.#forgetIdle(now);
      window = { times: new Float64Array(limit).fill(Number.NEGATIVE_INFINITY), next: 0, windowMs };
      this.#windows.set(key, window);
    }
    // The slot to be overwritten holds the hit `limit` hits ago.
    const waitMs = window.times[window.next]! + windowMs - now;
    // A clock that was set back must not lock anyone out for longer than one window.
    if (waitMs > 0 && waitMs <= windowMs) return waitMs;
    window.times[window.next] = now;
    window.next = (window.next + 1) % limit;
    return 0;
  }

  #forgetIdle(now: number): void {
    for (const [key, { times, next, windowMs }] of this.#windows) {
      const last = times[(next + times.length - 1) % times.length]!;
      if (last + windowMs <= now) this.#windows.delete(key);
    }
    // Everyone is active: the oldest keys lose their history rather than the process its memory.
    for (const key of this.#windows.keys()) {
      if (this.#windows.size < KEYS_MAX) break;
      this.#windows.delete(key);
    }
  }
}
