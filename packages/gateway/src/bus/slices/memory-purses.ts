import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { grantedAmount, type Quantity, type Spent } from "../contract.ts";
import { unitsIn } from "../in-process/reservations.ts";
import {
  CALM_MS,
  type Holding,
  LEFT_PER_AHEAD,
  type PurseAnswer,
  type PurseAsk,
  type PurseOrder,
  RECALL,
  RECALL_WAIT_MS,
} from "./contract.ts";
import { memoryOf } from "./purse-group.ts";

/** Names whose newest known use is kept; beyond it, what an instance read from the database counts. */
const SPENT_MAX = 100_000;

const plus = (a: Quantity, b: Quantity): Quantity => ({
  money: a.money + b.money,
  tokens: a.tokens + b.tokens,
});
const isNone = ({ money, tokens }: Quantity): boolean => money <= 0 && tokens <= 0;

interface Purse {
  /** What each instance holds. */
  held: Map<string, Quantity>;
  recalledAtMs: number;
}

/**
 * Counts what instances hold in the memory of one process: what the scripts on Redis do. An instance lives until it
 * leaves. Purses that nobody holds are not kept, which bounds the map.
 */
export class MemoryPurses {
  #memory: string | null = null;
  readonly #living = new Set<string>();
  readonly purses = new Map<string, Purse>();
  readonly #spent = new BoundedMap<string, Spent>(SPENT_MAX);

  constructor(
    readonly clock: Clock,
    readonly leftPerAhead = LEFT_PER_AHEAD,
  ) {}

  hold(instance: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    if (!this.#living.has(instance)) return null;
    const nowMs = this.clock.elapsed();
    return orders.map((order) => this.#hold(instance, order, nowMs));
  }

  #hold(instance: string, { name, base, spent, asks, ahead }: PurseOrder, nowMs: number): PurseAnswer {
    this.#learn(name, spent);
    const purse = this.purses.get(name) ?? { held: new Map(), recalledAtMs: Number.NEGATIVE_INFINITY };
    const others = heldByOthers(purse, instance);
    let mine = base;
    let isShort = false;
    const units = asks.map((ask) => {
      let granted = unitsIn({ ...ask, spent: this.#newest(name, ask) }, plus(mine, others));
      if (granted < ask.unitsMax) {
        isShort = true;
        if (!ask.isFinal && !isNone(others) && recalls(purse, nowMs)) granted = RECALL;
      }
      if (granted >= 0) mine = plus(mine, grantedAmount(ask.cost, granted));
      return granted;
    });
    const isCalm = nowMs - purse.recalledAtMs > CALM_MS;
    const last = asks.at(-1);
    const most = last && isCalm && !isShort ? this.#mostAhead(name, last, plus(mine, others)) : null;
    const hasPlenty =
      most !== null && most.money >= mine.money - base.money && most.tokens >= mine.tokens - base.tokens;
    const given = hasPlenty
      ? { money: Math.min(ahead.money, most.money), tokens: Math.min(ahead.tokens, most.tokens) }
      : { money: 0, tokens: 0 };
    this.#put(name, purse, instance, plus(mine, given));
    return { units, ahead: given, isTight: asks.length > 0 && !hasPlenty };
  }

  /** What may be held ahead of need, of what is left beside this. */
  #mostAhead(name: string, ask: PurseAsk, held: Quantity): Quantity {
    const { limit } = ask;
    const spent = this.#newest(name, ask);
    return {
      money: Math.floor((limit.money - spent.money - held.money) / this.leftPerAhead),
      tokens: Math.floor((limit.tokens - spent.tokens - held.tokens) / this.leftPerAhead),
    };
  }

  #put(name: string, purse: Purse, instance: string, held: Quantity): void {
    if (isNone(held)) purse.held.delete(instance);
    else purse.held.set(instance, held);
    if (purse.held.size > 0) this.purses.set(name, purse);
    else this.purses.delete(name);
  }

  #newest(name: string, { spent }: PurseAsk): Spent {
    const known = this.#spent.get(name);
    return known && known.version > spent.version ? known : spent;
  }

  #learn(name: string, spent: Spent | null): void {
    if (spent && spent.version > (this.#spent.get(name)?.version ?? Number.NEGATIVE_INFINITY))
      this.#spent.set(name, spent);
  }

  enter(instance: string, before: string, holdings: readonly Holding[]): string {
    if (before !== instance) this.leave(before);
    this.#living.add(instance);
    this.#memory ??= memoryOf(instance);
    for (const { name, base, spent } of holdings) {
      this.#learn(name, spent);
      const purse = this.purses.get(name) ?? { held: new Map(), recalledAtMs: Number.NEGATIVE_INFINITY };
      this.#put(name, purse, instance, base);
    }
    return this.#memory;
  }

  beat(instance: string): boolean {
    return this.#living.has(instance);
  }

  /** Frees everything that the instance holds. */
  leave(instance: string): void {
    if (!this.#living.delete(instance)) return;
    for (const [name, { held }] of this.purses)
      if (held.delete(instance) && held.size === 0) this.purses.delete(name);
  }
}

function heldByOthers({ held }: Purse, instance: string): Quantity {
  const sum = { money: 0, tokens: 0 };
  for (const [other, { money, tokens }] of held) {
    if (other === instance) continue;
    sum.money += money;
    sum.tokens += tokens;
  }
  return sum;
}

/** Whether instances are to be asked for what they do not need, before a request is lowered or refused. */
function recalls(purse: Purse, nowMs: number): boolean {
  if (nowMs - purse.recalledAtMs > CALM_MS) purse.recalledAtMs = nowMs;
  return nowMs - purse.recalledAtMs < RECALL_WAIT_MS;
}
