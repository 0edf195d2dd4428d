import {
  addRow,
  addSums,
  DAY_MS,
  DOUBLE_AT,
  DOUBLES,
  GRAINS_MS,
  HOUR_MS,
  MINUTE_MS,
  noSums,
  type Rows,
  totalsIn,
} from "./rows.ts";

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
  readonly minuteMs: number;
  readonly facetId: number;
  sums: number[];
  firstMs: number;
  lastMs: number;
  /** Whether these were refused or failed. */
  isUnanswered: boolean;
}

type MinuteOfAsker = Omit<Minute, "sums" | "lastMs"> & { askerId: number };

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
 * Sums of requests that are not in the database yet. Each request is counted once, by minute, asker and facet; the
 * sums of hours, days and everyone are made of those few.
 */
export class Sums {
  readonly #byMinute = new Map<number, Map<number, Map<number, Minute>>>();
  /** Of each asker: the next request is mostly of the same minute and facet. */
  readonly #latest = new Map<number, Minute>();

  #size = 0;

  /** Of minutes, askers and facets together. */
  get size(): number {
    return this.#size;
  }

  /** When they came, each minute once. */
  get minutes(): Iterable<number> {
    return this.#byMinute.keys();
  }

  add(rows: Rows): void {
    const { size, doubles, timesMs, statuses } = rows;
    for (let place = 0; place < size; place++) {
      const atMs = timesMs[place]!;
      const askerId = doubles[place * DOUBLES + DOUBLE_AT.asker]!;
      const facetId = doubles[place * DOUBLES + DOUBLE_AT.facet]!;
      const minuteMs = atMs - (atMs % MINUTE_MS);
      let minute = this.#latest.get(askerId);
      if (minute?.minuteMs !== minuteMs || minute.facetId !== facetId) {
        const isUnanswered = statuses[place]! >= 400;
        minute = this.#minute({ minuteMs, askerId, facetId, firstMs: atMs, isUnanswered });
        this.#latest.set(askerId, minute);
      }
      if (atMs < minute.firstMs) minute.firstMs = atMs;
      if (atMs > minute.lastMs) minute.lastMs = atMs;
      addRow(minute.sums, rows, place);
    }
  }

  /** The sums of a minute, empty ones if there are none yet. */
  #minute({ minuteMs, askerId, facetId, firstMs, isUnanswered }: MinuteOfAsker): Minute {
    const byFacet = inner(inner(this.#byMinute, minuteMs), askerId);
    let minute = byFacet.get(facetId);
    if (!minute) {
      minute = { minuteMs, facetId, sums: noSums(), firstMs, lastMs: firstMs, isUnanswered };
      byFacet.set(facetId, minute);
      this.#size++;
    }
    return minute;
  }

  addAll(others: Sums): void {
    for (const other of others.#minutes()) {
      const minute = this.#minute(other);
      addSums(minute.sums, other.sums);
      minute.firstMs = Math.min(minute.firstMs, other.firstMs);
      minute.lastMs = Math.max(minute.lastMs, other.lastMs);
    }
  }

  *#minutes(): Generator<Minute & { askerId: number }> {
    for (const byAsker of this.#byMinute.values())
      for (const [askerId, byFacet] of byAsker)
        for (const minute of byFacet.values()) yield { ...minute, askerId };
  }

  /** By minute, hour and day, of everyone and of each asker. */
  rows(): SumRow[] {
    const all = new Map<string, SumRow>();
    for (const { minuteMs, askerId, facetId, sums, firstMs, lastMs } of this.#minutes())
      for (const grainMs of GRAINS_MS)
        for (const asker of [null, askerId]) {
          const times =
            grainMs === HOUR_MS && asker !== null ? { firstMs, lastMs } : { firstMs: null, lastMs: null };
          const startMs = minuteMs - (minuteMs % grainMs);
          add(all, { grainMs, startMs, askerId: asker, facetId, sums, ...times });
        }
    return [...all.values()].sort(inKeyOrder);
  }

  /** What of an asker is compared with others, by day: rows of `request_asker_days`. */
  askerDays(): number[][] {
    const byDay = new Map<number, Map<number, number[]>>();
    for (const { minuteMs, askerId, sums, isUnanswered } of this.#minutes()) {
      const day = minuteMs - (minuteMs % DAY_MS);
      const byAsker = inner(byDay, day);
      let days = byAsker.get(askerId);
      if (!days) {
        days = [day, askerId, 0, 0, 0, 0, 0];
        byAsker.set(askerId, days);
      }
      const { requests, promptTokens, completionTokens, costNanoUsd } = totalsIn(sums);
      days[2]! += requests;
      if (isUnanswered) days[3]! += requests;
      days[4]! += promptTokens;
      days[5]! += completionTokens;
      days[6]! += costNanoUsd;
    }
    // Two writers then lock rows in the same order.
    return [...byDay.values()]
      .flatMap((byAsker) => [...byAsker.values()])
      .sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!);
  }
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
