/** A list that forgets its oldest entries. */
export class Ring<T> {
  readonly #max: number;
  #items: T[] = [];
  /** How many were forgotten since the last clear. */
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

  clear(): void {
    this.#items = [];
    this.dropped = 0;
  }
}
