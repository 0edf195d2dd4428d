/** A list that forgets its oldest entries. */
export class Ring<T> {
  readonly #max: number;
  readonly #items: T[] = [];
  /** How many were forgotten. */
  dropped = 0;

  constructor(max: number) {
    this.#max = max;
  }

  push(item: T): T | undefined {
    this.#items.push(item);
    if (this.#items.length <= this.#max) return undefined;
    this.dropped++;
    return this.#items.shift();
  }

  get items(): readonly T[] {
    return this.#items;
  }
}
