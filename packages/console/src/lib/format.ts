const UNKNOWN = "unknown";
type Maybe<T> = T | null | undefined;

const groupedFormat = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const count = (value: Maybe<number>) => (value == null ? UNKNOWN : groupedFormat.format(value));

/** Digits after the point that still show the smallest of these amounts. */
function moneyDigits(amounts: readonly Maybe<number>[]): number {
  const sizes = amounts.filter((usd) => usd).map((usd) => Math.abs(usd!));
  const smallest = Math.min(...sizes);
  return smallest >= 0.01 ? 2 : smallest >= 0.0001 ? 4 : 6;
}

const dollarFormats = [2, 4, 6].map(
  (digits) =>
    new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);
function dollars(usd: number, digits: number): string {
  const text = dollarFormats[digits / 2 - 1]!.format(usd);
  return text.startsWith("-") ? `-$${text.slice(1)}` : `$${text}`;
}

/** Writes amounts that stand together, such as a column, with the same number of digits. */
export function moneyFormat(amounts: readonly Maybe<number>[]): (usd: Maybe<number>) => string {
  const digits = moneyDigits(amounts);
  return (usd) => (usd == null ? UNKNOWN : dollars(usd, digits));
}

/** The same of sums: beside dollars, what is less than a cent need not be known to the digit. */
export function sumsFormat(amounts: readonly number[]): (usd: number) => string {
  const format = moneyFormat(amounts.some((usd) => usd >= 1) ? [] : amounts);
  return (usd) => (usd > 0 && usd < 0.005 && format(1) === "$1.00" ? "<$0.01" : format(usd));
}

/** `$12.34`; below a cent as many digits as it takes to see something. */
export const money = (usd: Maybe<number>): string => moneyFormat([usd])(usd);

export interface PartsInWords {
  parts: string[];
  total: string;
}

/** Amounts and their sum, rounded so that what is shown adds up: the largest remainders are rounded up. */
export function moneyParts(amounts: readonly number[]): PartsInWords {
  const digits = moneyDigits(amounts);
  const scale = 10 ** digits;
  const exact = amounts.map((usd) => usd * scale);
  const whole = exact.map(Math.floor);
  const total = Math.round(exact.reduce((sum, units) => sum + units, 0));
  const missing = total - whole.reduce((sum, units) => sum + units, 0);
  const byRemainder = exact
    .map((units, i) => ({ i, rest: units - whole[i]! }))
    .sort((a, b) => b.rest - a.rest);
  for (const { i } of byRemainder.slice(0, missing)) whole[i]!++;
  return {
    parts: whole.map((units) => dollars(units / scale, digits)),
    total: dollars(total / scale, digits),
  };
}

/** Whole numbers and their sum, written out: shortened ones would not add up. */
export const countParts = (values: readonly number[]): PartsInWords => ({
  parts: values.map(count),
  total: count(values.reduce((sum, value) => sum + value, 0)),
});

export const points = (value: Maybe<number>) =>
  value == null ? UNKNOWN : `${groupedFormat.format(value)} pt`;

/** `950`, `12.3k`, `4.1M`. */
export function compact(value: Maybe<number>): string {
  if (value == null) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 1000) return String(Math.round(value));
  const [scale, unit] = size < 999_950 ? [1e3, "k"] : size < 999_950_000 ? [1e6, "M"] : [1e9, "B"];
  return `${(value / scale).toFixed(size / scale < 99.95 ? 1 : 0)}${unit}`;
}

/** `85.0 MB/s`, in the units that links are sold in. */
export const rate = (bytesPerSecond: number) =>
  bytesPerSecond >= 1e9
    ? `${(bytesPerSecond / 1e9).toFixed(1)} GB/s`
    : bytesPerSecond >= 1e6
      ? `${(bytesPerSecond / 1e6).toFixed(1)} MB/s`
      : `${Math.round(bytesPerSecond / 1e3)} kB/s`;

export const percent = (share: number) => `${Math.round(share * 100)}%`;

/** Of a prompt, or of many: what came from the upstreams' caches; null where nothing was asked. */
export const cachedShare = (sums: { cached_tokens: number; prompt_tokens: number }): number | null =>
  sums.prompt_tokens > 0 ? sums.cached_tokens / sums.prompt_tokens : null;

/** What the upstreams' caches saved, which can be less than nothing: writing to them costs more. */
export const savedInWords = (usd: number): string =>
  usd < 0 ? `${money(-usd)} more than without it` : `${money(usd)} saved`;

/** Why a request has no cost. */
export const withoutCost = (unpriced: boolean): string => (unpriced ? "unpriced" : "not billed");

export function seconds(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(time: Maybe<string | number>, nowMs = Date.now()): string {
  if (time == null) return "never";
  const passedMs = nowMs - new Date(time).getTime();
  const size = Math.abs(passedMs);
  if (size < 5_000) return "just now";
  const units: [number, string][] = [
    [86_400_000 * 365, "y"],
    [86_400_000 * 30, "mo"],
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1_000, "s"],
  ];
  const [unitMs, unit] = units.find(([ms]) => size >= ms) ?? [1_000, "s"];
  // What was made to last 7 days has 7 left a moment later, not 6.
  const text = `${(passedMs >= 0 ? Math.floor : Math.round)(size / unitMs)} ${unit}`;
  return passedMs >= 0 ? `${text} ago` : `in ${text}`;
}

/** Kept, because to make one costs a hundred times what to use it does. */
const exactFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
export const exactTime = (time: string | number) => exactFormat.format(new Date(time));
const clockFormat = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
export const clockTime = (time: string | number) => clockFormat.format(new Date(time));

export const shortId = (id: string) => (id.length > 12 ? `${id.slice(0, 8)}…` : id);

/** Request ids begin with the time: those of one minute differ only at their ends. */
export const shortRequestId = (id: string) => `…${id.slice(-8)}`;

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** Today in the reader's own time as a clock, other days as a date. */
const dayFormat = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric" });
export const shortTime = (time: string | number, nowMs = Date.now()): string =>
  new Date(time).toDateString() === new Date(nowMs).toDateString()
    ? clockTime(time)
    : dayFormat.format(new Date(time));

/** From one time to another, with the day of each that the reader could not guess. */
export function periodText(since: string, until: string, nowMs = Date.now()): string {
  const sameDay = (a: string, b: string | number) =>
    new Date(a).toDateString() === new Date(b).toDateString();
  const withDay = (time: string) => `${dayFormat.format(new Date(time))} ${clockTime(time)}`;
  if (!sameDay(since, until)) return `${withDay(since)} to ${withDay(until)}`;
  return `${sameDay(since, nowMs) ? clockTime(since) : withDay(since)} to ${clockTime(until)}`;
}

export const dayOf = (date: Date) => date.toISOString().slice(0, 10);

/** A day of a chart, whose days are in UTC. */
export const shortDay = (seconds: number): string =>
  new Date(seconds * 1000).toLocaleDateString("en-US", { month: "short", day: "numeric", timeZone: "UTC" });
