import { addRow, addSums, GRAINS_MS, MINUTE_MS, noSums, type RecordRow } from "./rows.ts";

export interface SumRow {
  grainMs: number;
  startMs: number;
  /** Null: everyone. */
  askerId: number | null;
  facetId: number;
  sums: number[];
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
  const byMinute = new Map<number, Map<number, Map<number, number[]>>>();
  for (const row of rows) {
    const minute = row.atMs - (row.atMs % MINUTE_MS);
    const byFacet = inner(inner(byMinute, minute), row.askerId);
    let sums = byFacet.get(row.facetId);
    if (!sums) {
      sums = noSums();
      byFacet.set(row.facetId, sums);
    }
    addRow(sums, row);
  }
  const all = new Map<string, SumRow>();
  for (const [minute, byAsker] of byMinute)
    for (const [askerId, byFacet] of byAsker)
      for (const [facetId, sums] of byFacet)
        for (const grainMs of GRAINS_MS)
          for (const asker of [null, askerId])
            add(all, { grainMs, startMs: minute - (minute % grainMs), askerId: asker, facetId, sums });
  return [...all.values()].sort(inKeyOrder);
}

function add(all: Map<string, SumRow>, row: SumRow): void {
  const key = `${row.grainMs} ${row.startMs} ${row.askerId} ${row.facetId}`;
  const known = all.get(key);
  if (known) addSums(known.sums, row.sums);
  else all.set(key, { ...row, sums: [...row.sums] });
}

/** Two writers then lock rows in the same order. */
const inKeyOrder = (a: SumRow, b: SumRow): number =>
  a.grainMs - b.grainMs ||
  a.startMs - b.startMs ||
  (a.askerId ?? 0) - (b.askerId ?? 0) ||
  a.facetId - b.facetId;
