type Key = readonly (string | number)[];

interface Sum {
  key: Key;
  values: number[];
}

/** Sums by key. */
export class Sums {
  readonly #sums = new Map<string, Sum>();

  add(key: Key, values: readonly number[]): void {
    const sums = this.at(key, values.length);
    for (let i = 0; i < values.length; i++) sums[i]! += values[i]!;
  }

  /** The sums of a key, all 0 at first. */
  at(key: Key, count: number): number[] {
    const id = key.join("\u0000");
    const sum = this.#sums.get(id) ?? { key, values: new Array<number>(count).fill(0) };
    this.#sums.set(id, sum);
    return sum.values;
  }

  get all(): Iterable<Sum> {
    return this.#sums.values();
  }

  /** Rows of key and sums, in the order of the keys: two writers then lock rows in the same order. */
  rows(): Key[] {
    return [...this.#sums]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, { key, values }]) => [...key, ...values]);
  }
}
