import {
  type Asking,
  type Cost,
  grantedAmount,
  HAIR,
  type Purse,
  type Quantity,
  REFUSED,
  type Reservations,
  type ReservedChange,
} from "../contract.ts";

const NOTHING: Quantity = { money: 0, tokens: 0 };

/** What is reserved by this process. Names on which nothing is reserved are not kept, which bounds the map. */
export class InProcessReservations implements Reservations {
  readonly #reserved = new Map<string, Quantity>();

  grant(asking: Asking): number {
    const { purses, alsoOn, unitsMin, unitsMax } = asking;
    let units = unitsMax;
    for (const purse of purses) {
      const { name, limit, spent, unitsBeyond, cost = asking } = purse;
      const ask = { limit, spent, unitsBeyond, cost, unitsMin, unitsMax: units };
      units = unitsIn(ask, this.#reserved.get(name) ?? NOTHING);
      if (units === REFUSED) return REFUSED;
    }
    const amount = grantedAmount(asking, units);
    for (const { name, cost } of purses) this.#add(name, cost ? grantedAmount(cost, units) : amount);
    for (const name of alsoOn) this.#add(name, amount);
    return units;
  }

  change(changes: readonly ReservedChange[]): void {
    for (const { name, amount } of changes) this.#add(name, amount);
  }

  #add(name: string, { money, tokens }: Quantity): void {
    const reserved = this.#reserved.get(name);
    if (!reserved) {
      if (money > 0 || tokens > 0) this.#reserved.set(name, { money, tokens });
      return;
    }
    reserved.money += money;
    reserved.tokens += tokens;
    if (reserved.money <= 0 && reserved.tokens <= 0) this.#reserved.delete(name);
  }

  async close(): Promise<void> {}
}

/** As many units as fit one purse, or `REFUSED`. */
export function unitsIn(
  ask: Pick<Purse, "limit" | "spent" | "unitsBeyond"> & { cost: Cost; unitsMin: number; unitsMax: number },
  reserved: Quantity,
): number {
  const { cost, unitsMin, unitsMax } = ask;
  const units = Math.min(
    unitsMax,
    unitsThatFit("money", cost, ask, reserved),
    unitsThatFit("tokens", cost, ask, reserved),
  );
  return units < unitsMin ? REFUSED : units;
}

/** The same as `units_that_fit` in the script of the Redis bus. */
function unitsThatFit(
  measure: keyof Quantity,
  { fixed, perUnit }: Cost,
  { limit, spent, unitsBeyond }: Pick<Purse, "limit" | "spent" | "unitsBeyond">,
  reserved: Quantity,
): number {
  let left = limit[measure] - spent[measure] - reserved[measure];
  if (unitsBeyond !== null) {
    if (left <= 0) return REFUSED;
    left = Math.floor(left + unitsBeyond * perUnit[measure]);
  }
  const room = left - fixed[measure] + HAIR;
  if (room < 0) return REFUSED;
  return perUnit[measure] > 0 ? Math.floor(room / perUnit[measure]) : Number.POSITIVE_INFINITY;
}
