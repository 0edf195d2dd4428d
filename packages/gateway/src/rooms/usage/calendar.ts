/** Months and days of the accounts are UTC ones, so daylight saving never makes one longer or shorter. */
export const DAY_MS = 86_400_000;

/** `YYYY-MM` of an instant. */
export const utcMonth = (ms: number): string => new Date(ms).toISOString().slice(0, 7);

/** The same for many instants, of which most are in the month of the one before: formatting a date costs more. */
export class MonthNames {
  #name = "";
  #fromMs = 0;
  #untilMs = 0;

  at(ms: number): string {
    if (ms < this.#fromMs || ms >= this.#untilMs) {
      this.#name = utcMonth(ms);
      this.#fromMs = monthsBeforeMs(ms, 0);
      this.#untilMs = nextMonthMs(ms);
    }
    return this.#name;
  }
}

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
