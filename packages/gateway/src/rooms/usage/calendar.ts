/** Months and days of the accounts are UTC ones, so daylight saving never makes one longer or shorter. */
export const DAY_MS = 86_400_000;

/** `YYYY-MM` of an instant. */
export const utcMonth = (ms: number): string => new Date(ms).toISOString().slice(0, 7);

/** `YYYY-MM-DD` of an instant. */
export const utcDay = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** First instant of the month that is `count` months before the one that `ms` is in. */
export function monthsBeforeMs(ms: number, count: number): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - count, 1);
}

/** First instant of the month after the one that `ms` is in. */
export function nextMonthMs(ms: number): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
}
