const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"] as const;

/** An address without what may be secret in it: user, password and query. */
export function shownUrl(address: string): string {
  const { origin, pathname } = new URL(address);
  return pathname === "/" ? origin : `${origin}${pathname}`;
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

export function formatSeconds(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}
