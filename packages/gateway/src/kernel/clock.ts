import type { Clock } from "@model-gateway/wire/clock";

export { type Clock, systemClock } from "@model-gateway/wire/clock";

export const isoTime = (ms: number): string => new Date(ms).toISOString();

export const sleep = (clock: Clock, delayMs: number): Promise<void> =>
  new Promise((resolve) => {
    clock.after(delayMs, resolve);
  });

/** Runs `task` with a signal that is aborted after `delayMs`, with the message `late`. */
export async function withDeadline<T>(
  clock: Clock,
  { delayMs, late }: { delayMs: number; late: string },
  task: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const expiry = new AbortController();
  const cancel = clock.after(delayMs, () => expiry.abort(new Error(late)));
  return task(expiry.signal).finally(cancel);
}

/** The result of `work`, or null if it takes longer than `delayMs`; the work itself goes on. */
export async function within<T>(clock: Clock, delayMs: number, work: Promise<T>): Promise<T | null> {
  const { promise: late, resolve } = Promise.withResolvers<null>();
  const cancel = clock.after(delayMs, () => resolve(null));
  return Promise.race([work, late]).finally(cancel);
}
