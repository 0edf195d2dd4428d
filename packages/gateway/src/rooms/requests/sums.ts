import { addRow, addSums, DAY_MS, GRAINS_MS, HOUR_MS, MINUTE_MS, noSums, type RecordRow } from "./rows.ts";

export interface SumRow {
  grainMs: number;
  startMs: number;
  /** Null: everyone. */
  askerId: number | null;
  facetId: number;
  sums: number[];
  /** Of an asker's hour: when its first and last request came. */
  firstMs: number | null;
  lastMs: number | null;
}

interface Minute {
  sums: number[];
  firstMs: number;
  lastMs: number;
}

/** What of an asker is compared with others, by day: a row of `request_asker_days`. */
export function askerDaysOf(rows: readonly RecordRow[]): number[][] {
  const byDay = new Map<number, Map<number, number[]>>();
  for (const row of rows) {
    const day = row.atMs - (row.atMs % DAY_MS);
    const byAsker = inner(byDay, day);
    let sums = byAsker.get(row.askerId);
    if (!sums) {
      sums = [day, row.askerId, 0, 0, 0, 0, 0];
      byAsker.set(row.askerId, sums);
    }
    sums[2]! += 1;
    if (row.status >= 400) sums[3]! += 1;
    sums[4]! += row.promptTokens;
    sums[5]! += row.completionTokens;
    sums[6]! += row.costNanoUsd ?? 0;
  }
  // Two writers then lock rows in the same order.
  return [...byDay.values()]
    .flatMap((byAsker) => [...byAsker.values()])
    .sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!);
}

/** A map of maps whose inner one is made when it is first needed. */
function inner<K, V>(outer: Map<K, Map<number, V>>, key: K): Map<number, V> {
  let found = outer.get(key);
  if (!found) {
    found = new Map();
    outer.set(key, found);
  }
  return found;
}

/**
 * The sums of a batch by minute, hour and day, of everyone and of each asker. Rows are counted once, by minute, asker
 * and facet; those few sums are then added to the others.
 */
export function sumsOf(rows: readonly RecordRow[]): SumRow[] {
  const byMinute = new Map<number, Map<number, Map<number, Minute>>>();
  for (const row of rows) {
    const minute = row.atMs - (row.atMs % MINUTE_MS);
    const byFacet = inner(inner(byMinute, minute), row.askerId);
    let sum = byFacet.get(row.facetId);
    if (!sum) {
      sum = { sums: noSums(), firstMs: row.atMs, lastMs: row.atMs };
      byFacet.set(row.facetId, sum);
    }
    if (row.atMs < sum.firstMs) sum.firstMs = row.atMs;
    if (row.atMs > sum.lastMs) sum.lastMs = row.atMs;
    addRow(sum.sums, row);
  }
  const all = new Map<string, SumRow>();
  for (const [minute, byAsker] of byMinute)
    for (const [askerId, byFacet] of byAsker)
      for (const [facetId, { sums, firstMs, lastMs }] of byFacet)
        for (const grainMs of GRAINS_MS)
          for (const asker of [null, askerId]) {
            const times =
              grainMs === HOUR_MS && asker !== null ? { firstMs, lastMs } : { firstMs: null, lastMs: null };
            const startMs = minute - (minute % grainMs);
            add(all, { grainMs, startMs, askerId: asker, facetId, sums, ...times });
          }
  return [...all.values()].sort(inKeyOrder);
}

function add(all: Map<string, SumRow>, row: SumRow): void {
  const key = `${row.grainMs} ${row.startMs} ${row.askerId} ${row.facetId}`;
  const known = all.get(key);
  if (known) {
    addSums(known.sums, row.sums);
    if (row.firstMs !== null) known.firstMs = Math.min(known.firstMs ?? row.firstMs, row.firstMs);
    if (row.lastMs !== null) known.lastMs = Math.max(known.lastMs ?? row.lastMs, row.lastMs);
  } else all.set(key, { ...row, sums: [...row.sums] });
}

/** Two writers then lock rows in the same order. */
const inKeyOrder = (a: SumRow, b: SumRow): number =>
  a.grainMs - b.grainMs ||
  a.startMs - b.startMs ||
  (a.askerId ?? 0) - (b.askerId ?? 0) ||
  a.facetId - b.facetId;
