const UNITS: Readonly<Record<string, number>> = { B: 0, KiB: 1, MiB: 2, GiB: 3, TiB: 4 };
const SIZE = String.raw`([\d.]+) (B|KiB|MiB|GiB|TiB)`;
const TRANSFER = new RegExp(`^${SIZE} of ${SIZE}(?:, ${SIZE}/s)?`);

const bytesOf = (amount: string, unit: string) => Number(amount) * 1024 ** (UNITS[unit] ?? 0);

export interface Transfer {
  doneBytes: number;
  totalBytes: number;
  bytesPerSecond: number | null;
}

/** What a node says of a download, e.g. "1.2 GiB of 4.7 GiB, 85.0 MiB/s"; null for any other words. */
export function readTransfer(message: string | undefined): Transfer | null {
  const [, done, doneUnit, total, totalUnit, rate, rateUnit] = TRANSFER.exec(message ?? "") ?? [];
  if (!done || !doneUnit || !total || !totalUnit) return null;
  return {
    doneBytes: bytesOf(done, doneUnit),
    totalBytes: bytesOf(total, totalUnit),
    bytesPerSecond: rate && rateUnit ? bytesOf(rate, rateUnit) : null,
  };
}

export interface Sample {
  atMs: number;
  /** 0 to 100. */
  progress: number;
}

export const SAMPLES_MAX = 12;

/** Time until the end at the pace of the latest samples; null while it is unknown. */
export function leftMsOf(samples: readonly Sample[], transfer: Transfer | null): number | null {
  if (transfer?.bytesPerSecond)
    return ((transfer.totalBytes - transfer.doneBytes) / transfer.bytesPerSecond) * 1000;
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last || last.progress <= first.progress) return null;
  return ((100 - last.progress) * (last.atMs - first.atMs)) / (last.progress - first.progress);
}
