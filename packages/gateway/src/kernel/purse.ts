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
