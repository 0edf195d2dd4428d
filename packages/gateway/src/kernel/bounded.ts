/** Enough for the users, keys, accounts or models that a process deals with. */
const SIZE_MAX = 50_000;

/** For caches: a map that drops its oldest entry when a new one finds it full. */
export class BoundedMap<K, V> extends Map<K, V> {
  constructor(readonly sizeMax = SIZE_MAX) {
    super();
  }

  override set(key: K, value: V): this {
    if (this.size >= this.sizeMax && !this.has(key)) this.delete(this.keys().next().value as K);
    return super.set(key, value);
  }
  // Map's own would insert without `set`, and so beyond the limit.
  override getOrInsertComputed(key: K, make: (key: K) => V): V {
    if (!this.has(key)) this.set(key, make(key));
    return this.get(key) as V;
  }
  override getOrInsert(key: K, value: V): V {
    return this.getOrInsertComputed(key, () => value);
  }
  deleteWhere(matches: (value: V, key: K) => boolean): void {
    for (const [key, value] of this) if (matches(value, key)) this.delete(key);
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

/** A budget that all accounts share. None may take more than is left for the others, so that one cannot use it up. */
export class Purse {
  #total = 0;
  readonly #taken = new Map<string, number>();

  constructor(readonly capacity: number) {}

  /** False if too little is left, or the account would exceed its share. */
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

/** Remembers the answers by name, for as long as the returned function is kept. */
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

/** While the work runs, further calls return the same promise instead of starting it again. */
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
