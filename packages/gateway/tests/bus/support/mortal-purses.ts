/** Purses of instances that die of silence, as on Redis. */
import type { Holding, PurseAnswer, PurseOrder } from "../../../src/bus/slices/contract.ts";
import { MemoryPurses } from "../../../src/bus/slices/memory-purses.ts";
import { ALIVE_MS } from "../../../src/bus/slices/purse-group.ts";

export class MortalPurses extends MemoryPurses {
  readonly #aliveUntilMs = new Map<string, number>();

  #bury(): void {
    for (const [instance, untilMs] of this.#aliveUntilMs)
      if (untilMs <= this.clock.elapsed()) this.leave(instance);
  }

  override hold(instance: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    this.#bury();
    return super.hold(instance, orders);
  }

  override enter(instance: string, before: string, holdings: readonly Holding[]): string {
    this.#bury();
    this.#aliveUntilMs.set(instance, this.clock.elapsed() + ALIVE_MS);
    return super.enter(instance, before, holdings);
  }

  override beat(instance: string): boolean {
    this.#bury();
    const lives = super.beat(instance);
    if (lives) this.#aliveUntilMs.set(instance, this.clock.elapsed() + ALIVE_MS);
    return lives;
  }

  override leave(instance: string): void {
    this.#aliveUntilMs.delete(instance);
    super.leave(instance);
  }
}
