/** Who counts the purses of the model check: a server on which instances die of silence, or a supervisor of workers. */
import type { ManualClock } from "@model-gateway/testing/clock.ts";
import type { Quantity } from "../../../src/bus/contract.ts";
import type { Holding, PurseAnswer, PurseOrder } from "../../../src/bus/slices/contract.ts";
import { MemoryPurses } from "../../../src/bus/slices/memory-purses.ts";
import { ALIVE_MS } from "../../../src/bus/slices/purse-group.ts";
import { LOST_MS, WorkerHolds } from "../../../src/bus/workers/holds.ts";

export interface Entering {
  instance: string;
  /** The ids under which it holds from now on, and held before. */
  as: string;
  before: string;
}

export interface SharedPursesOptions {
  clock: ManualClock;
  leftPerAhead: number;
  /** The instance is taken for dead, so others may have what it held. */
  died(instance: string): void;
}

export interface SharedPurses {
  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null;
  enter(entering: Entering, holdings: readonly Holding[]): string;
  beat(as: string): boolean;
  leave(as: string): void;
  /** The instance's connection is gone. */
  lost(instance: string): void;
  /** Loses everything. */
  forget(): void;
  /** What each instance holds in the purse. */
  held(name: string): ReadonlyMap<string, Quantity>;
}

/** By instance, of what is known by the ids that they have at the server. */
function byInstance(
  { purses }: MemoryPurses,
  name: string,
  instanceOf: ReadonlyMap<string, string>,
): Map<string, Quantity> {
  const held = [...(purses.get(name)?.held ?? [])];
  return new Map(held.map(([as, quantity]) => [instanceOf.get(as)!, quantity]));
}

/** As Redis does: an instance lives for a while after it last said so. */
export class ServerPurses implements SharedPurses {
  #purses: MemoryPurses;
  readonly #aliveUntilMs = new Map<string, number>();
  readonly #instanceOf = new Map<string, string>();
  /** The id that each instance entered under last. */
  readonly #current = new Map<string, string>();

  constructor(readonly options: SharedPursesOptions) {
    this.#purses = this.#empty();
  }

  #empty(): MemoryPurses {
    return new MemoryPurses(this.options.clock, this.options.leftPerAhead);
  }

  #bury(): void {
    for (const [as, untilMs] of this.#aliveUntilMs) {
      if (untilMs > this.options.clock.elapsed()) continue;
      this.leave(as);
      const instance = this.#instanceOf.get(as)!;
      if (this.#current.get(instance) === as) this.options.died(instance);
    }
  }

  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    this.#bury();
    return this.#purses.hold(as, orders);
  }

  enter({ instance, as, before }: Entering, holdings: readonly Holding[]): string {
    this.#bury();
    this.#instanceOf.set(as, instance);
    this.#current.set(instance, as);
    this.#aliveUntilMs.delete(before);
    this.#aliveUntilMs.set(as, this.options.clock.elapsed() + ALIVE_MS);
    return this.#purses.enter(as, before, holdings);
  }

  beat(as: string): boolean {
    this.#bury();
    const lives = this.#purses.beat(as);
    if (lives) this.#aliveUntilMs.set(as, this.options.clock.elapsed() + ALIVE_MS);
    return lives;
  }

  leave(as: string): void {
    this.#aliveUntilMs.delete(as);
    this.#purses.leave(as);
  }

  lost(): void {}

  forget(): void {
    this.#aliveUntilMs.clear();
    this.#purses = this.#empty();
  }

  held(name: string): Map<string, Quantity> {
    this.#bury();
    return byInstance(this.#purses, name, this.#instanceOf);
  }
}

/** As the supervisor of workers does: one lives as long as its connection, and what it held stays for a while. */
export class SupervisorPurses implements SharedPurses {
  #holds: WorkerHolds;
  readonly #instanceOf = new Map<string, string>();
  readonly #lost = new Map<string, () => void>();

  constructor(readonly options: SharedPursesOptions) {
    this.#holds = this.#empty();
  }

  #empty(): WorkerHolds {
    const { clock, leftPerAhead } = this.options;
    return new WorkerHolds(clock, new MemoryPurses(clock, leftPerAhead));
  }

  hold(as: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    return this.#holds.purses.hold(as, orders);
  }

  enter({ instance, as }: Entering, holdings: readonly Holding[]): string {
    this.#instanceOf.set(as, instance);
    this.#lost.get(instance)?.();
    return this.#holds.enter(instance, as, holdings);
  }

  beat(as: string): boolean {
    return this.#holds.purses.beat(as);
  }

  leave(as: string): void {
    this.#holds.purses.leave(as);
  }

  lost(instance: string): void {
    const { clock, died } = this.options;
    this.#holds.lost(instance);
    this.#lost.set(
      instance,
      clock.after(LOST_MS, () => died(instance)),
    );
  }

  forget(): void {
    this.#holds.close();
    this.#holds = this.#empty();
  }

  held(name: string): Map<string, Quantity> {
    return byInstance(this.#holds.purses, name, this.#instanceOf);
  }
}
