/** Time, injected so that tests can freeze, jump and fast-forward it. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds since some fixed moment, for durations: it goes on evenly when the machine's clock is set. */
  elapsed(): number;
  /** Runs `task` once after `delayMs`; the returned function cancels it. */
  after(delayMs: number, task: () => void): () => void;
  /** Runs `task` every `periodMs`; the returned function ends it. */
  every(periodMs: number, task: () => void): () => void;
}

/** While what has arrived is handled: the times at which that began. */
let heldNowMs = 0;
let heldElapsedMs = 0;

/**
 * Between these two calls `systemClock` stands still: each request asks it a dozen times, and asking the system takes
 * as long as a few dozen instructions of ours. What is handled in between is one turn of the event loop.
 */
export function holdTime(): void {
  heldNowMs = Date.now();
  heldElapsedMs = performance.now();
}
export function releaseTime(): void {
  heldNowMs = 0;
}

export const systemClock: Clock = {
  now: () => (heldNowMs === 0 ? Date.now() : heldNowMs),
  elapsed: () => (heldNowMs === 0 ? performance.now() : heldElapsedMs),
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  /** At whole periods of the process's time, so that all that are due wake it once. */
  every(periodMs, task) {
    let timer: ReturnType<typeof setTimeout>;
    const wait = () => {
      const leftMs = periodMs - (performance.now() % periodMs);
      timer = setTimeout(run, Math.ceil(leftMs < periodMs / 2 ? leftMs + periodMs : leftMs));
      timer.unref?.();
    };
    const run = () => {
      wait();
      task();
    };
    wait();
    return () => clearTimeout(timer);
  },
};
