import type { Clock } from "@model-gateway/wire/clock";

export { type Clock, systemClock } from "@model-gateway/wire/clock";

export const isoTime = (ms: number): string => new Date(ms).toISOString();

export const sleep = (clock: Clock, delayMs: number): Promise<void> =>
  new Promise((resolve) => {
    clock.after(delayMs, resolve);
  });
