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
  SUM_COLUMNS,
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

/** Of one asker and facet. */
interface Minute {
  minuteMs: number;
  askerId: number;
  facetId: number;
  sums: Float64Array;
  firstMs: number;
  lastMs: number;
  /** Whether these were refused or failed. */
  isUnanswered: boolean;
}

/** Where the numbers of a minute stand: what every request needs, and its totals, in one line of the processor's cache. */
const MINUTE_AT = { minuteMs: 0, facetId: 1, firstMs: 2, lastMs: 3, sums: 4 } as const;
const ASKER_AT = MINUTE_AT.sums + SUM_COLUMNS.length;
const UNANSWERED_AT = ASKER_AT + 1;
const MINUTE_NUMBERS = UNANSWERED_AT + 1;
const MINUTES_AT_FIRST = 64;

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
  /** Places in `#numbers` by minute, asker and facet. */
  readonly #byMinute = new Map<number, Map<number, Map<number, number>>>();
  /** Of each asker: the next request is mostly of the same minute and facet. */
  readonly #latest = new Map<number, number>();
  /** Minutes one after the other: as objects each would be in several places of the memory. */
  #numbers = new Float64Array(MINUTES_AT_FIRST * MINUTE_NUMBERS);
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
      let at = this.#latest.get(askerId);
      if (
        at === undefined ||
        this.#numbers[at + MINUTE_AT.minuteMs] !== minuteMs ||
        this.#numbers[at + MINUTE_AT.facetId] !== facetId
      ) {
        const isUnanswered = statuses[place]! >= 400;
        at = this.#placeOf({ minuteMs, askerId, facetId, firstMs: atMs, isUnanswered });
        this.#latest.set(askerId, at);
      }
      const numbers = this.#numbers;
      if (atMs < numbers[at + MINUTE_AT.firstMs]!) numbers[at + MINUTE_AT.firstMs] = atMs;
      if (atMs > numbers[at + MINUTE_AT.lastMs]!) numbers[at + MINUTE_AT.lastMs] = atMs;
      addRow(numbers, at + MINUTE_AT.sums, rows, place);
    }
  }

  /** Where the sums of a minute begin, empty ones if there are none yet. */
  #placeOf({ minuteMs, askerId, facetId, firstMs, isUnanswered }: Omit<Minute, "sums" | "lastMs">): number {
    const byFacet = inner(inner(this.#byMinute, minuteMs), askerId);
    const known = byFacet.get(facetId);
    if (known !== undefined) return known;
    const at = this.#size++ * MINUTE_NUMBERS;
    if (at === this.#numbers.length) {
      const fewer = this.#numbers;
      this.#numbers = new Float64Array(fewer.length * 2);
      this.#numbers.set(fewer);
    }
    this.#numbers.set([minuteMs, facetId, firstMs, firstMs], at);
    this.#numbers[at + ASKER_AT] = askerId;
    this.#numbers[at + UNANSWERED_AT] = Number(isUnanswered);
    byFacet.set(facetId, at);
    return at;
  }

  addAll(others: Sums): void {
    for (const other of others.#minutes()) {
      const at = this.#placeOf(other);
      const numbers = this.#numbers;
      numbers[at + MINUTE_AT.firstMs] = Math.min(numbers[at + MINUTE_AT.firstMs]!, other.firstMs);
      numbers[at + MINUTE_AT.lastMs] = Math.max(numbers[at + MINUTE_AT.lastMs]!, other.lastMs);
      for (const [column, sum] of other.sums.entries()) numbers[at + MINUTE_AT.sums + column]! += sum;
    }
  }

  *#minutes(): Generator<Minute> {
    const numbers = this.#numbers;
    for (let at = 0; at < this.#size * MINUTE_NUMBERS; at += MINUTE_NUMBERS)
      yield {
        minuteMs: numbers[at + MINUTE_AT.minuteMs]!,
        askerId: numbers[at + ASKER_AT]!,
        facetId: numbers[at + MINUTE_AT.facetId]!,
        sums: numbers.subarray(at + MINUTE_AT.sums, at + ASKER_AT),
        firstMs: numbers[at + MINUTE_AT.firstMs]!,
        lastMs: numbers[at + MINUTE_AT.lastMs]!,
        isUnanswered: numbers[at + UNANSWERED_AT] === 1,
      };
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

function add(all: Map<string, SumRow>, row: Omit<SumRow, "sums"> & { sums: Float64Array }): void {
  const key = `${row.grainMs} ${row.startMs} ${row.askerId} ${row.facetId}`;
  const known = all.get(key);
  if (known) {
    addSums(known.sums, row.sums);
    if (row.firstMs !== null) known.firstMs = Math.min(known.firstMs ?? row.firstMs, row.firstMs);
    if (row.lastMs !== null) known.lastMs = Math.max(known.lastMs ?? row.lastMs, row.lastMs);
  } else {
    const sums = noSums();
    addSums(sums, row.sums);
    all.set(key, { ...row, sums });
  }
}

/** Two writers then lock rows in the same order. */
const inKeyOrder = (a: SumRow, b: SumRow): number =>
  a.grainMs - b.grainMs ||
  a.startMs - b.startMs ||
  (a.askerId ?? 0) - (b.askerId ?? 0) ||
  a.facetId - b.facetId;
