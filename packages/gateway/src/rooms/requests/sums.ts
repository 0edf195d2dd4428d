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

  *#minutes(): Generator<Minute> {
    for (let at = 0; at < this.#size * MINUTE_NUMBERS; at += MINUTE_NUMBERS) yield this.#minuteAt(at);
  }

  #minuteAt(at: number): Minute {
    const numbers = this.#numbers;
    return {
      minuteMs: numbers[at + MINUTE_AT.minuteMs]!,
      askerId: numbers[at + ASKER_AT]!,
      facetId: numbers[at + MINUTE_AT.facetId]!,
      sums: numbers.subarray(at + MINUTE_AT.sums, at + ASKER_AT),
      firstMs: numbers[at + MINUTE_AT.firstMs]!,
      lastMs: numbers[at + MINUTE_AT.lastMs]!,
      isUnanswered: numbers[at + UNANSWERED_AT] === 1,
    };
  }

  /** Each asker's, in the order of their numbers, in which all writers lock the rows. */
  *#byAsker(): Generator<Minute[]> {
    const placesOf = new Map<number, number[]>();
    for (let at = 0; at < this.#size * MINUTE_NUMBERS; at += MINUTE_NUMBERS) {
      const askerId = this.#numbers[at + ASKER_AT]!;
      const places = placesOf.get(askerId);
      if (places) places.push(at);
      else placesOf.set(askerId, [at]);
    }
    for (const askerId of Float64Array.from(placesOf.keys()).sort())
      yield placesOf.get(askerId)!.map((at) => this.#minuteAt(at));
  }

  /** By minute, hour and day, of each asker: made as they are taken, since there may be thousands. */
  *ofAskers(): Generator<SumRow> {
    for (const minutes of this.#byAsker()) yield* rowsOf(minutes);
  }

  /** By minute, hour and day. */
  ofEveryone(): SumRow[] {
    const all = new Map<number, Map<number, Everyones>>();
    for (const { minuteMs, facetId, sums } of this.#minutes()) {
      const byFacet = inner(all, minuteMs);
      const known = byFacet.get(facetId);
      if (known) addSums(known.sums, sums);
      else byFacet.set(facetId, { minuteMs, askerId: null, facetId, sums: Array.from(sums) });
    }
    return rowsOf([...all.values()].flatMap((byFacet) => [...byFacet.values()]));
  }

  /** What of an asker is compared with others, by day: rows of `request_asker_days`. */
  *askerDays(): Generator<number[]> {
    for (const minutes of this.#byAsker()) {
      const byDay = new Map<number, number[]>();
      for (const { minuteMs, askerId, sums, isUnanswered } of minutes) {
        const day = minuteMs - (minuteMs % DAY_MS);
        const days = byDay.get(day) ?? [day, askerId, 0, 0, 0, 0, 0];
        byDay.set(day, days);
        const { requests, promptTokens, completionTokens, costNanoUsd } = totalsIn(sums);
        days[2]! += requests;
        if (isUnanswered) days[3]! += requests;
        days[4]! += promptTokens;
        days[5]! += completionTokens;
        days[6]! += costNanoUsd;
      }
      yield* [...byDay.values()].sort((a, b) => a[0]! - b[0]!);
    }
  }
}

interface Everyones {
  minuteMs: number;
  askerId: null;
  facetId: number;
  sums: number[];
}

/** Of these minutes, which are one asker's or everyone's, in the order in which all writers lock the rows. */
function rowsOf(minutes: readonly (Minute | Everyones)[]): SumRow[] {
  const all = new Map<string, SumRow>();
  for (const minute of minutes)
    for (const grainMs of GRAINS_MS) {
      const { minuteMs, askerId, facetId } = minute;
      const startMs = minuteMs - (minuteMs % grainMs);
      const key = `${grainMs} ${startMs} ${facetId}`;
      const row = all.get(key) ?? {
        grainMs,
        startMs,
        askerId,
        facetId,
        sums: noSums(),
        firstMs: null,
        lastMs: null,
      };
      all.set(key, row);
      addSums(row.sums, minute.sums);
      if (grainMs !== HOUR_MS || minute.askerId === null) continue;
      row.firstMs = Math.min(row.firstMs ?? minute.firstMs, minute.firstMs);
      row.lastMs = Math.max(row.lastMs ?? minute.lastMs, minute.lastMs);
    }
  return [...all.values()].sort(
    (a, b) => a.grainMs - b.grainMs || a.startMs - b.startMs || a.facetId - b.facetId,
  );
}
