/**
 * Preloaded into a process that is measured: how long its event loop was held. On SIGUSR2 it appends a `LoopHolds`
 * to the file that LOOP_PROBE_FILE names, and begins again.
 *
 * A timer that should come every millisecond comes late when something holds the loop, and also when the machine
 * gives the thread no processor. Only the first is counted: the kernel tells how long the thread was ready and waited.
 */
import { appendFileSync, openSync, readSync } from "node:fs";

export interface LoopHolds {
  /** The longest time without a turn of the event loop. */
  longestMs: number;
  /** How often there was none for more than three milliseconds. */
  overThreeMs: number;
}

const TICK_MS = 1;
const LONG_MS = 3;
const NS_PER_MS = 1e6;
const file = process.env.LOOP_PROBE_FILE;

function watch(into: string): void {
  const fd = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
  const text = Buffer.alloc(128);
  /** For how long this thread was ready and another one ran. */
  const waitedMs = () => {
    const length = readSync(fd, text, 0, text.length, 0);
    return Number(text.toString("latin1", 0, length).split(" ")[1]) / NS_PER_MS;
  };
  let holds: LoopHolds = { longestMs: 0, overThreeMs: 0 };
  let lastAt = performance.now();
  let lastWaited = waitedMs();
  setInterval(() => {
    const now = performance.now();
    const waited = waitedMs();
    const heldMs = now - lastAt - TICK_MS - (waited - lastWaited);
    lastAt = now;
    lastWaited = waited;
    holds.longestMs = Math.max(holds.longestMs, heldMs);
    if (heldMs > LONG_MS) holds.overThreeMs++;
  }, TICK_MS).unref();
  process.on("SIGUSR2", () => {
    appendFileSync(into, `${JSON.stringify(holds)}\n`);
    holds = { longestMs: 0, overThreeMs: 0 };
  });
}

if (file !== undefined && Bun.isMainThread) watch(file);
