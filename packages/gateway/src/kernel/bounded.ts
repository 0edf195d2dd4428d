/** Users, keys, accounts, models: of how many a process remembers something. */
const REMEMBERED_MAX = 50_000;

/** A map that forgets its oldest entry once it is full: for caches, which may always forget. */
export class BoundedMap<K, V> {
  #map = new Map<K, V>();
  constructor(readonly sizeMax = REMEMBERED_MAX) {}

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

/** Something that all accounts draw on. None may have more of it than is left for the others, so that one cannot take it all. */
export class Purse {
  #total = 0;
  readonly #taken = new Map<string, number>();

  constructor(readonly capacity: number) {}

  /** False: there is not so much left, or it is more than the account's share. */
  take(account: string, amount: number): boolean {
    const own = (this.#taken.get(account) ?? 0) + amount;
    if (own > this.capacity - this.#total - amount) return false;
    this.#total += amount;
    this.#taken.set(account, own);
    return true;
  }

  give(account: string, amount: number): void {
    this.#total -= amount;
    const own = (this.#taken.get(account) ?? 0) - amount;
    if (own > 0) this.#taken.set(account, own);
    else this.#taken.delete(account);
  }
}

/** A question whose answer is remembered by name, for as long as the returned function is kept. */
export function askedOnce<T>(
  nameOf: (subject: T) => string,
  ask: (subject: T) => Promise<boolean>,
): (subject: T) => Promise<boolean> {
  const answers = new Map<string, boolean>();
  return async (subject) => {
    const name = nameOf(subject);
    const known = answers.get(name);
    if (known !== undefined) return known;
    const answer = await ask(subject);
    answers.set(name, answer);
    return answer;
  };
}

/** Work that is not begun again while it is under way: who asks meanwhile gets the same run. */
export function oneAtATime<T>(work: () => Promise<T>) {
  const run = (): Promise<T> => {
    run.running ??= work().finally(() => {
      run.running = null;
    });
    return run.running;
  };
  run.running = null as Promise<T> | null;
  return run;
}
