/** A map that forgets its oldest entry once it is full: for caches, which may always forget. */
export class BoundedMap<K, V> {
  #map = new Map<K, V>();
  constructor(readonly sizeMax: number) {}

  get size(): number {
    return this.#map.size;
  }
  get(key: K): V | undefined {
    return this.#map.get(key);
  }
  set(key: K, value: V): void {
    if (this.#map.size >= this.sizeMax && !this.#map.has(key)) {
      this.#map.delete(this.#map.keys().next().value as K);
    }
    this.#map.set(key, value);
  }
  delete(key: K): boolean {
    return this.#map.delete(key);
  }
  clear(): void {
    this.#map.clear();
  }
  entries(): IterableIterator<[K, V]> {
    return this.#map.entries();
  }
  deleteWhere(matches: (value: V, key: K) => boolean): void {
    for (const [key, value] of this.#map) if (matches(value, key)) this.#map.delete(key);
  }
}

/** Lets at most `concurrency` tasks run at once and at most `queueMax` wait; beyond that `overflow` decides. */
export class Gate {
  #running = 0;
  #waiting: (() => void)[] = [];
  constructor(
    readonly concurrency: number,
    readonly queueMax: number,
    readonly overflow: () => never,
  ) {}

  async run<T>(task: () => Promise<T>): Promise<T> {
    if (this.#running >= this.concurrency) {
      if (this.#waiting.length >= this.queueMax) this.overflow();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#running++;
    try {
      return await task();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}
