export type KeyPart = string | number;

interface Sum<Key> {
  key: Key;
  values: number[];
}

/** Sums by key. Keys are found part by part: the parts recur, a text made of them would be new each time. */
export class Sums<Key extends readonly KeyPart[] = readonly KeyPart[]> {
  readonly #root = new Map<KeyPart, unknown>();
  readonly #sums: Sum<Key>[] = [];

  add(key: Key, values: readonly number[]): void {
    const sums = this.at(key, values.length);
    for (let i = 0; i < values.length; i++) sums[i]! += values[i]!;
  }

  /** The sums of a key, all 0 at first. */
  at(key: Key, count: number): number[] {
    let level = this.#root;
    const last = key.length - 1;
    for (let i = 0; i < last; i++) {
      let next = level.get(key[i]!) as Map<KeyPart, unknown> | undefined;
      if (!next) {
        next = new Map();
        level.set(key[i]!, next);
      }
      level = next;
    }
    let sum = level.get(key[last]!) as Sum<Key> | undefined;
    if (!sum) {
      sum = { key, values: new Array(count).fill(0) };
      level.set(key[last]!, sum);
      this.#sums.push(sum);
    }
    return sum.values;
  }

  get all(): readonly Sum<Key>[] {
    return this.#sums;
  }

  /** Rows of key and sums, in the order of the keys: two writers then lock rows in the same order. */
  rows(): (readonly KeyPart[])[] {
    return this.#sums
      .map(({ key, values }) => ({ id: key.join("\u0000"), row: [...key, ...values] }))
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map(({ row }) => row);
  }
}
