import {
  type Asking,
  type Cost,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  type Reservations,
  type ReservedChange,
} from "../contract.ts";
import type { PurseGroup } from "./purse-group.ts";

/** What was taken from a purse for a request that is not decided yet. */
interface Taken {
  name: string;
  cost: Cost;
  units: number;
}

/** Reservations that are shared with other instances, and admitted from slices of what all of them may hold. */
export class SlicedReservations implements Reservations {
  constructor(
    readonly groups: readonly PurseGroup[],
    readonly groupOf: (name: string) => number,
  ) {}

  #group(name: string): PurseGroup {
    return this.groups[this.groupOf(name)]!;
  }

  grant(asking: Asking): number | Promise<number> {
    const { purses, alsoOn, unitsMax } = asking;
    const amount = grantedAmount(asking, unitsMax);
    const needs = purses.map(({ cost }) => (cost ? grantedAmount(cost, unitsMax) : amount));
    if (!purses.every((purse, index) => this.#group(purse.name).hasRoom(purse, needs[index]!)))
      return this.#ask(asking);
    for (const [index, { name }] of purses.entries()) this.#group(name).change(name, needs[index]!);
    for (const name of alsoOn) this.#group(name).change(name, amount);
    return unitsMax;
  }

  /**
   * One purse after the other, in the same order everywhere: of two requests that both want the last of two purses,
   * one gets it.
   */
  async #ask(asking: Asking): Promise<number> {
    const { purses, alsoOn, unitsMin, unitsMax } = asking;
    const taken: Taken[] = [];
    let units = unitsMax;
    for (const purse of [...purses].sort(byName)) {
      const { name, cost = asking } = purse;
      const granted = await this.#group(name).take(purse, { cost, unitsMin, unitsMax: units });
      if (granted === REFUSED) {
        for (const each of taken) this.#giveBack(each, grantedAmount(each.cost, each.units));
        return REFUSED;
      }
      units = granted;
      taken.push({ name, cost, units });
    }
    for (const each of taken) {
      if (each.units > units) {
        const [had, needed] = [grantedAmount(each.cost, each.units), grantedAmount(each.cost, units)];
        this.#giveBack(each, { money: had.money - needed.money, tokens: had.tokens - needed.tokens });
      }
    }
    const amount = grantedAmount(asking, units);
    for (const name of alsoOn) this.#group(name).change(name, amount);
    return units;
  }

  #giveBack({ name }: Taken, { money, tokens }: Quantity): void {
    this.#group(name).change(name, { money: -money, tokens: -tokens });
  }

  change(changes: readonly ReservedChange[]): void {
    const settled = new Set<string>();
    for (const { name, spent } of changes) if (spent) settled.add(name);
    for (const { name, amount, spent } of changes)
      this.#group(name).change(name, amount, spent, settled.has(name));
  }

  async close(): Promise<void> {
    await Promise.all(this.groups.map((group) => group.close()));
  }
}

const byName = (a: Purse, b: Purse): number => (a.name < b.name ? -1 : 1);
