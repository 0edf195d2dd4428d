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

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  every(periodMs, task) {
    const timer = setInterval(task, periodMs);
    timer.unref?.();
    return () => clearInterval(timer);
  },
};
