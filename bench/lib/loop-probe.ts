/**
 * Preloaded into a process that is measured: how long its event loop was held. On SIGUSR2 it appends a `LoopHolds`
 * to the file that LOOP_PROBE_FILE names, and begins again.
 */
import { appendFileSync } from "node:fs";

export interface LoopHolds {
  /** The longest time that a one-millisecond timer came late. */
  longestMs: number;
  /** How often it came more than three milliseconds late. */
  overThreeMs: number;
}

const TICK_MS = 1;
const LONG_MS = 3;
let holds: LoopHolds = { longestMs: 0, overThreeMs: 0 };
let lastAt = performance.now();

const file = process.env.LOOP_PROBE_FILE;
if (file !== undefined && Bun.isMainThread) {
  setInterval(() => {
    const now = performance.now();
    const lateMs = now - lastAt - TICK_MS;
    lastAt = now;
    holds.longestMs = Math.max(holds.longestMs, lateMs);
    if (lateMs > LONG_MS) holds.overThreeMs++;
  }, TICK_MS).unref();
  process.on("SIGUSR2", () => {
    appendFileSync(file, `${JSON.stringify(holds)}\n`);
    holds = { longestMs: 0, overThreeMs: 0 };
    lastAt = performance.now();
  });
}
