/** Waits, unless the signal is aborted first; then it throws the signal's reason. */
export function abortableDelay(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, delayMs);
    signal.addEventListener("abort", stop, { once: true });
  });
}

export interface BackoffOptions {
  initialMs: number;
  maxMs: number;
}

/** Doubles from `initialMs` to `maxMs`; `attempt` counts from 1. */
export function backoffMs(attempt: number, { initialMs, maxMs }: BackoffOptions): number {
  return Math.min(maxMs, initialMs * 2 ** Math.min(attempt - 1, 30));
}

/** Between half of the delay and all of it, so that many nodes do not return in step. */
export function jittered(delayMs: number, random: () => number = Math.random): number {
  return delayMs * (0.5 + random() / 2);
}
