import type { Clock } from "../../kernel/clock.ts";
import type { RateLimiter } from "../contract.ts";
import { Window, Windows } from "./windows.ts";

/**
 * A sliding log. Exact: within no window are more hits counted than the limit. A key costs as much memory as it
 * is used, and never more than for 2,048 hits: with a limit above 1,024 a hit may be forgotten late by a
 * thousandth of the window.
 */
export class InProcessRateLimiter implements RateLimiter {
  readonly #windows = new Windows((windowMs) => new Window(windowMs));
  constructor(readonly clock: Clock) {}

  hit(key: string, limit: number, windowMs: number): number {
    if (limit <= 0) return windowMs;
    const nowMs = this.clock.elapsed();
    return this.#windows.of(key, windowMs, nowMs).hit(limit, nowMs);
  }
}
