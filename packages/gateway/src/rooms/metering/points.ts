import { MULTIPLIER_ONE } from "../../kernel/payer.ts";

/** A billionth of a point: fine enough that the cost of any request is a whole number of them. */
export const NANO_PER_POINT = 1e9;

/** What a cost takes from an account, rounded up: a reservation may be too large, never too small. */
export function nanoPoints(costNanoUsd: number, multiplierMicros: number, pointsPerUsd: number): number {
  const exact = costNanoUsd * pointsPerUsd * (multiplierMicros / MULTIPLIER_ONE);
  // The binary fraction of a multiplier may lie a hair above a whole number; that is not one more.
  return Math.ceil(exact - 0.001);
}

/** What requests under way, and rows not yet in the database, will take from accounts. */
export class ReservedPoints {
  readonly #byAccount = new Map<string, number>();

  of(accountKey: string): number {
    return this.#byAccount.get(accountKey) ?? 0;
  }

  add(accountKey: string, amount: number): void {
    const sum = this.of(accountKey) + amount;
    // Accounts that nothing is reserved on are not kept, which is what bounds the map.
    if (sum <= 0) this.#byAccount.delete(accountKey);
    else this.#byAccount.set(accountKey, sum);
  }
}
