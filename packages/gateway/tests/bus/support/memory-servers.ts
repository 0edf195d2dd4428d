/** What the scripts on Redis do, in memory and on a clock that the test moves. `slice-servers.test.ts` compares them. */
import { type Cost, grantedAmount, type Quantity, type Spent } from "../../../src/bus/contract.ts";
import { unitsIn } from "../../../src/bus/in-process/reservations.ts";
import {
  CALM_MS,
  type Holding,
  LEFT_PER_AHEAD,
  type LimitAnswer,
  type LimitOrder,
  type PurseAnswer,
  type PurseAsk,
  type PurseOrder,
  RECALL,
  RECALL_WAIT_MS,
  SLICE_MS,
} from "../../../src/bus/slices/contract.ts";
import { ALIVE_MS } from "../../../src/bus/slices/purse-group.ts";
import type { Clock } from "../../../src/kernel/clock.ts";

interface Purse {
  held: Map<string, Quantity>;
  spent: Spent | null;
  recalledAtMs: number;
}

const plus = (a: Quantity, b: Quantity): Quantity => ({
  money: a.money + b.money,
  tokens: a.tokens + b.tokens,
});
const times = (cost: Cost, units: number): Quantity =>
  units < 0 ? { money: 0, tokens: 0 } : grantedAmount(cost, units);

export class MemoryPurses {
  #memory: string | null = null;
  readonly #alive = new Map<string, number>();
  readonly purses = new Map<string, Purse>();

  constructor(
    readonly clock: Clock,
    /** Less is more generous than the scripts are: slices then last until everything is used. */
    readonly leftPerAhead = LEFT_PER_AHEAD,
  ) {}

  #lives(instance: string): boolean {
    return (this.#alive.get(instance) ?? 0) > this.clock.now();
  }

  #purse(name: string): Purse {
    const purse = this.purses.get(name) ?? { held: new Map(), spent: null, recalledAtMs: -1e9 };
    this.purses.set(name, purse);
    return purse;
  }

  hold(instance: string, orders: readonly PurseOrder[]): PurseAnswer[] | null {
    return this.#lives(instance) ? orders.map((order) => this.#holdOne(instance, order)) : null;
  }

  #holdOne(instance: string, { name, base, spent, asks, ahead }: PurseOrder): PurseAnswer {
    const purse = this.#purse(name);
    this.#learn(purse, spent);
    let others: Quantity = { money: 0, tokens: 0 };
    for (const [other, held] of purse.held) {
      if (other === instance) continue;
      if (this.#lives(other)) others = plus(others, held);
      else purse.held.delete(other);
    }
    let mine = base;
    let isShort = false;
    const units = asks.map((ask) => {
      const known = { ...ask, spent: this.#newest(ask, purse) };
      let granted = unitsIn(known, plus(mine, others));
      if (granted < ask.unitsMax) {
        isShort = true;
        if (this.#recalls(purse, ask, others)) granted = RECALL;
      }
      mine = plus(mine, times(ask.cost, granted));
      return granted;
    });
    const answer = { units, ahead: { money: 0, tokens: 0 }, isTight: false };
    const last = asks.at(-1);
    if (last) {
      const { limit } = last;
      const known = this.#newest(last, purse);
      const most = (measure: keyof Quantity) =>
        Math.floor((limit[measure] - known[measure] - others[measure] - mine[measure]) / this.leftPerAhead);
      const isScarce = (measure: keyof Quantity) => most(measure) < mine[measure] - base[measure];
      const isCalled = this.clock.now() - purse.recalledAtMs <= CALM_MS;
      if (isShort || isCalled || isScarce("money") || isScarce("tokens")) answer.isTight = true;
      else
        answer.ahead = {
          money: Math.min(ahead.money, most("money")),
          tokens: Math.min(ahead.tokens, most("tokens")),
        };
    }
    mine = plus(mine, answer.ahead);
    if (mine.money <= 0 && mine.tokens <= 0) purse.held.delete(instance);
    else purse.held.set(instance, mine);
    return answer;
  }

  #newest({ spent }: PurseAsk, purse: Purse): Spent {
    return purse.spent && purse.spent.version > spent.version ? purse.spent : spent;
  }

  #recalls(purse: Purse, { isFinal }: PurseAsk, others: Quantity): boolean {
    if (isFinal || (others.money <= 0 && others.tokens <= 0)) return false;
    const nowMs = this.clock.now();
    if (nowMs - purse.recalledAtMs > CALM_MS) purse.recalledAtMs = nowMs;
    return nowMs - purse.recalledAtMs < RECALL_WAIT_MS;
  }

  enter(instance: string, before: string, holdings: readonly Holding[]): string {
    this.#alive.delete(before);
    this.#alive.set(instance, this.clock.now() + ALIVE_MS);
    this.#memory ??= `memory ${instance}`;
    for (const { name, base, spent } of holdings) {
      const purse = this.#purse(name);
      this.#learn(purse, spent);
      if (base.money > 0 || base.tokens > 0) purse.held.set(instance, base);
    }
    return this.#memory;
  }

  #learn(purse: Purse, spent: Spent | null): void {
    if (spent && spent.version > (purse.spent?.version ?? Number.NEGATIVE_INFINITY)) purse.spent = spent;
  }

  beat(instance: string): boolean {
    if (!this.#lives(instance)) return false;
    this.#alive.set(instance, this.clock.now() + ALIVE_MS);
    return true;
  }

  leave(instance: string): void {
    this.#alive.delete(instance);
  }

  /** What living instances hold in the purse. */
  heldBy(name: string): Quantity {
    let sum: Quantity = { money: 0, tokens: 0 };
    for (const [instance, held] of this.purses.get(name)?.held ?? [])
      if (this.#lives(instance)) sum = plus(sum, held);
    return sum;
  }

  forgetAll(): void {
    this.#memory = null;
    this.#alive.clear();
    this.purses.clear();
  }
}

interface Run {
  timeMs: number;
  hits: number;
}

interface Log {
  runs: Map<string, Run>;
  next: number;
  sliceEndMs: number;
  recalledAtMs: number;
}

export class MemoryLimits {
  readonly #logs = new Map<string, Log>();

  constructor(
    readonly clock: Clock,
    /** Less is more generous than the scripts are: slices then last until everything is used. */
    readonly leftPerAhead = LEFT_PER_AHEAD,
  ) {}

  hit(orders: readonly LimitOrder[]): LimitAnswer[] {
    return orders.map((order) => this.#hitOne(order));
  }

  #hitOne({ key, limit, windowMs, hits, ahead, ended, isFinal }: LimitOrder): LimitAnswer {
    const nowMs = this.clock.now();
    const log = this.#logs.get(key) ?? { runs: new Map(), next: 1, sliceEndMs: 0, recalledAtMs: 0 };
    this.#logs.set(key, log);
    const slice = ended && log.runs.get(ended.slice);
    if (slice) {
      slice.hits -= ended.unused;
      slice.timeMs = Math.min(slice.timeMs, nowMs);
    }
    for (const [id, { timeMs, hits: count }] of log.runs)
      if (timeMs + windowMs <= nowMs || count <= 0) log.runs.delete(id);
    const total = () => [...log.runs.values()].reduce((sum, run) => sum + run.hits, 0);
    const add = (timeMs: number, count: number): string => {
      const id = `${log.next++} ${timeMs}`;
      log.runs.set(id, { timeMs, hits: count });
      return id;
    };
    const counted = Math.max(0, Math.min(hits, limit - total()));
    if (counted > 0) add(nowMs, counted);
    let waitMs = 0;
    if (counted < hits) {
      const oldestMs = Math.min(nowMs, ...[...log.runs.values()].map(({ timeMs }) => timeMs));
      waitMs = Math.max(1, oldestMs + windowMs - nowMs);
      if (!isFinal && log.sliceEndMs > nowMs) {
        if (nowMs - log.recalledAtMs > CALM_MS) log.recalledAtMs = nowMs;
        if (nowMs - log.recalledAtMs < RECALL_WAIT_MS) waitMs = RECALL;
      }
    }
    let given = 0;
    if (counted === hits && nowMs - log.recalledAtMs > CALM_MS)
      given = Math.max(0, Math.min(ahead, Math.floor((limit - total()) / this.leftPerAhead)));
    if (given > 0) log.sliceEndMs = nowMs + SLICE_MS;
    return { counted, waitMs, ahead: given, slice: given > 0 ? add(log.sliceEndMs, given) : "" };
  }
}
