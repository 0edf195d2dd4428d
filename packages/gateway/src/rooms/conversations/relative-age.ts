const UNITS: readonly [string, number][] = [
  ["year", 365 * 86_400],
  ["month", 30 * 86_400],
  ["week", 7 * 86_400],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** "just now", "5 minutes ago", "2 days ago". */
export function relativeAge(timestamp: string, nowMs: number): string {
  const seconds = Math.floor((nowMs - Date.parse(timestamp)) / 1000);
  for (const [unit, unitSeconds] of UNITS) {
    const count = Math.floor(seconds / unitSeconds);
    if (count >= 1) return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
  }
  return "just now";
}
