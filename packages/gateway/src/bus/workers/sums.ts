import type { Quantity, ReservedChange } from "../contract.ts";

/** What one worker has reserved, by name. Names on which nothing is reserved are not kept. */
export class ReservedSums {
  readonly #sums = new Map<string, Quantity>();

  change(changes: readonly ReservedChange[]): void {
    for (const { name, amount } of changes) {
      const money = (this.#sums.get(name)?.money ?? 0) + amount.money;
      const tokens = (this.#sums.get(name)?.tokens ?? 0) + amount.tokens;
      if (money > 0 || tokens > 0) this.#sums.set(name, { money, tokens });
      else this.#sums.delete(name);
    }
  }

  /** As the change that would reserve all of it, or with -1 free it. */
  all(sign: 1 | -1 = 1): ReservedChange[] {
    return Array.from(this.#sums, ([name, { money, tokens }]) => ({
      name,
      amount: { money: sign * money, tokens: sign * tokens },
    }));
  }
}
