/** Who counts the purses of the model check: a server on which instances die of silence, or a supervisor of workers. */
import type { ManualClock } from "@model-gateway/testing/clock.ts";
import type { Quantity } from "../../../src/bus/contract.ts";
import type { Holding, PurseAnswer, PurseOrder } from "../../../src/bus/slices/contract.ts";
import { MemoryPurses } from "../../../src/bus/slices/memory-purses.ts";
import { ALIVE_MS } from "../../../src/bus/slices/purse-group.ts";
import { WorkerHolds } from "../../../src/bus/workers/holds.ts";

export interface Entering {
  instance: string;
  /** The ids under which it holds from now on, and held before. */
  as: string;
  before: string;
}

export interface SharedPurses {
  /** Whether an instance that was stopped for long is taken for dead. */
  readonly diesOfSilence: boolean;
  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null;
  enter(entering: Entering, holdings: readonly Holding[]): string;
  beat(as: string): boolean;
  leave(as: string): void;
  /** The instance's connection is gone. */
  lost(instance: string): void;
  /** Loses everything. */
  forget(): void;
  held(name: string): Quantity;
}

function heldIn({ purses }: MemoryPurses, name: string): Quantity {
  const sum = { money: 0, tokens: 0 };
  for (const { money, tokens } of purses.get(name)?.held.values() ?? []) {
    sum.money += money;
    sum.tokens += tokens;
  }
  return sum;
}

/** As Redis does: an instance lives for a while after it last said so. */
export class ServerPurses implements SharedPurses {
  readonly diesOfSilence = true;
  #purses: MemoryPurses;
  readonly #aliveUntilMs = new Map<string, number>();

  constructor(
    readonly clock: ManualClock,
    readonly leftPerAhead: number,
  ) {
    this.#purses = new MemoryPurses(clock, leftPerAhead);
  }

  #bury(): void {
    for (const [instance, untilMs] of this.#aliveUntilMs)
      if (untilMs <= this.clock.elapsed()) this.leave(instance);
  }

  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    this.#bury();
    return this.#purses.hold(as, orders);
  }

  enter({ as, before }: Entering, holdings: readonly Holding[]): string {
    this.#bury();
    this.#aliveUntilMs.delete(before);
    this.#aliveUntilMs.set(as, this.clock.elapsed() + ALIVE_MS);
    return this.#purses.enter(as, before, holdings);
  }

  beat(as: string): boolean {
    this.#bury();
    const lives = this.#purses.beat(as);
    if (lives) this.#aliveUntilMs.set(as, this.clock.elapsed() + ALIVE_MS);
    return lives;
  }

  leave(as: string): void {
    this.#aliveUntilMs.delete(as);
    this.#purses.leave(as);
  }

  lost(): void {}

  forget(): void {
    this.#aliveUntilMs.clear();
    this.#purses = new MemoryPurses(this.clock, this.leftPerAhead);
  }

  held(name: string): Quantity {
    this.#bury();
    return heldIn(this.#purses, name);
  }
}

/** As the supervisor of workers does: one lives as long as its connection, and what it held stays for a while. */
export class SupervisorPurses implements SharedPurses {
  readonly diesOfSilence = false;
  #holds: WorkerHolds;

  constructor(
    readonly clock: ManualClock,
    readonly leftPerAhead: number,
  ) {
    this.#holds = this.#empty();
  }

  #empty(): WorkerHolds {
    return new WorkerHolds(this.clock, new MemoryPurses(this.clock, this.leftPerAhead));
  }

  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    return this.#holds.purses.hold(as, orders);
  }

  enter({ instance, as }: Entering, holdings: readonly Holding[]): string {
    return this.#holds.enter(instance, as, holdings);
  }

  beat(as: string): boolean {
    return this.#holds.purses.beat(as);
  }

  leave(as: string): void {
    this.#holds.purses.leave(as);
  }

  lost(instance: string): void {
    this.#holds.lost(instance);
  }

  forget(): void {
    this.#holds.close();
    this.#holds = this.#empty();
  }

  held(name: string): Quantity {
    return heldIn(this.#holds.purses, name);
  }
}
