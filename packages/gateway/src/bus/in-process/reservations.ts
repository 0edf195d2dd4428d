import type { Quantity, Reservations, ReservedChange, Reserving } from "../contract.ts";

/** What is reserved by this process. Names on which nothing is reserved are not kept, which bounds the map. */
export class InProcessReservations implements Reservations {
  readonly #reserved = new Map<string, Quantity>();

  take({ names, amount, room, limit, spent }: Reserving): boolean {
    const reserved = this.#reserved.get(names[0]!);
    if (spent.money + (reserved?.money ?? 0) + room.money > limit.money) return false;
    if (spent.tokens + (reserved?.tokens ?? 0) + room.tokens > limit.tokens) return false;
    for (const name of names) this.add(name, amount);
    return true;
  }

  change(changes: readonly ReservedChange[]): void {
    for (const { name, amount } of changes) this.add(name, amount);
  }

  add(name: string, { money, tokens }: Quantity): void {
    const reserved = this.#reserved.get(name);
    if (!reserved) {
      if (money > 0 || tokens > 0) this.#reserved.set(name, { money, tokens });
      return;
    }
    reserved.money += money;
    reserved.tokens += tokens;
    if (reserved.money <= 0 && reserved.tokens <= 0) this.#reserved.delete(name);
  }

  entries(): IterableIterator<[string, Quantity]> {
    return this.#reserved.entries();
  }

  async close(): Promise<void> {}
}
