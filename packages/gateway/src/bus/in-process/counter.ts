import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import {
  type Asking,
  type Exceeded,
  grantedAmount,
  type Purse,
  type Quantity,
  type RateLimit,
  REFUSED,
  type ReservedChange,
  type Spent,
  unitsThatFit,
} from "../contract.ts";
import {
  type CounterAnswer,
  type CounterAnswers,
  type CounterAsk,
  type CounterEntry,
  OPENS_AFTER_MS,
  TIMES_MAX,
} from "../counter-server.ts";

/** Names whose newest `spent` is remembered; for others, what an instance read from the database counts. */
const SPENT_MAX = 100_000;

/** Counts in this process's memory. Names without reservations are not kept, which bounds the map. */
export class MemoryCounter {
  readonly #windows = new Windows();
  readonly #instances = new Set<string>();
  readonly #reserved = new Map<string, Map<string, Quantity>>();
  readonly #spent = new BoundedMap<string, Spent>(SPENT_MAX);
  #opensAtMs: number | null = null;

  constructor(readonly clock: Clock) {}

  ask(instance: string, asks: readonly CounterAsk[]): CounterAnswers | null {
    if (!this.#instances.has(instance)) return null;
    return { answers: asks.map((ask) => this.answer(instance, ask)), instances: this.#instances.size };
  }

  /** `sharers`: how many instances share what is left, each without knowing the holds of the others. */
  answer(instance: string, ask: CounterAsk, sharers = 1): CounterAnswer {
    if ("grant" in ask) return [this.grant(instance, ask.grant, sharers)];
    if ("change" in ask) {
      this.change(instance, ask.change);
      return [];
    }
    const exceeded = this.hit(ask.hit);
    return exceeded ? [exceeded.at, exceeded.waitMs] : [];
  }

  hit(limits: readonly RateLimit[]): Exceeded | null {
    const nowMs = this.clock.elapsed();
    for (let at = 0; at < limits.length; at++) {
      const { key, max, windowMs } = limits[at]!;
      const waitMs = max > 0 ? this.#windows.of(key, windowMs, nowMs).hit(max, nowMs) : windowMs;
      if (waitMs > 0) return { at, waitMs };
    }
    return null;
  }

  grant(instance: string, asking: Asking, sharers = 1): number {
    const units = unitsThatFit(asking, (purse) => this.#leftIn(purse, sharers));
    if (units !== REFUSED) this.hold(instance, asking, units);
    return units;
  }

  #leftIn({ name, limit, spent }: Purse, sharers: number): Quantity {
    const known = this.#spent.get(name);
    const newest = known && known.version > spent.version ? known : spent;
    const left = {
      money: (limit.money - newest.money) / sharers,
      tokens: (limit.tokens - newest.tokens) / sharers,
    };
    for (const { money, tokens } of this.#reserved.get(name)?.values() ?? []) {
      left.money -= money;
      left.tokens -= tokens;
    }
    return left;
  }

  hold(instance: string, asking: Asking, units: number): void {
    const amount = grantedAmount(asking, units);
    for (const { name, cost } of asking.purses)
      this.#add(instance, name, cost ? grantedAmount(cost, units) : amount);
    for (const name of asking.alsoOn) this.#add(instance, name, amount);
  }

  change(instance: string, changes: readonly ReservedChange[]): void {
    for (const { name, amount, spent } of changes) {
      this.#add(instance, name, amount);
      if (spent && spent.version > (this.#spent.get(name)?.version ?? Number.NEGATIVE_INFINITY))
        this.#spent.set(name, spent);
    }
  }

  #add(instance: string, name: string, { money, tokens }: Quantity): void {
    const all = this.#reserved.get(name);
    const own = all?.get(instance);
    const sum = { money: (own?.money ?? 0) + money, tokens: (own?.tokens ?? 0) + tokens };
    if (sum.money > 0 || sum.tokens > 0) {
      if (all) all.set(instance, sum);
      else this.#reserved.set(name, new Map([[instance, sum]]));
    } else if (all?.delete(instance) && all.size === 0) this.#reserved.delete(name);
  }

  heldBy(instance: string): ReservedChange[] {
    const held: ReservedChange[] = [];
    for (const [name, all] of this.#reserved) {
      const amount = all.get(instance);
      if (amount) held.push({ name, amount });
    }
    return held;
  }

  enter(instance: string): CounterEntry {
    const nowMs = this.clock.elapsed();
    const isNew = this.#opensAtMs === null;
    this.#opensAtMs ??= nowMs + OPENS_AFTER_MS;
    this.#instances.add(instance);
    return { isNew, opensInMs: Math.max(0, this.#opensAtMs - nowMs) };
  }

  leave(instances: readonly string[]): void {
    for (const instance of instances) {
      if (!this.#instances.delete(instance)) continue;
      for (const { name, amount } of this.heldBy(instance))
        this.#add(instance, name, { money: -amount.money, tokens: -amount.tokens });
    }
  }
}

const KEYS_MAX = 50_000;
/** Keys left after an eviction: evicting them one by one would add work to every request. */
const KEYS_KEPT = 45_000;

/** A sliding log of hits, oldest first. Exact up to a limit of 1,024; above, hits may expire up to 1/1,024 of the window late. */
class Window {
  readonly #times: number[] = [];
  readonly #shares: number[] = [];
  #hits = 0;
  /** When the newest entry got its first hit; its time is that of its last one. */
  #newestBeganMs = Number.NEGATIVE_INFINITY;

  constructor(readonly windowMs: number) {}

  /** Returns 0 if the hit was counted, otherwise the milliseconds until the next may be. */
  hit(max: number, nowMs: number): number {
    const isShared = max > TIMES_MAX && nowMs - this.#newestBeganMs < this.windowMs / TIMES_MAX;
    const hasNewest = !this.isPast(nowMs);
    // At most the window: more than one entry must expire if the limit was lowered.
    if (this.#hits >= max) return Math.min(this.#times[0]! + this.windowMs - nowMs, this.windowMs);
    this.#hits++;
    if (isShared && hasNewest) {
      const newest = this.#times.length - 1;
      this.#times[newest] = nowMs;
      this.#shares[newest]!++;
    } else {
      this.#times.push(nowMs);
      this.#shares.push(1);
      this.#newestBeganMs = nowMs;
    }
    return 0;
  }

  isPast(nowMs: number): boolean {
    let past = 0;
    while (past < this.#times.length && nowMs - this.#times[past]! >= this.windowMs) past++;
    if (past > 0) {
      this.#times.splice(0, past);
      for (const hits of this.#shares.splice(0, past)) this.#hits -= hits;
    }
    return this.#times.length === 0;
  }
}

/** The windows of all keys; the oldest are dropped to bound the memory. */
class Windows {
  readonly #windows = new Map<string, Window>();

  of(key: string, windowMs: number, nowMs: number): Window {
    let window = this.#windows.get(key);
    if (!window) {
      if (this.#windows.size >= KEYS_MAX) this.#makeRoom(nowMs);
      window = new Window(windowMs);
      this.#windows.set(key, window);
    }
    return window;
  }

  #makeRoom(nowMs: number): void {
    for (const [key, window] of this.#windows) if (window.isPast(nowMs)) this.#windows.delete(key);
    // If all keys are active, the oldest lose their history.
    for (const key of this.#windows.keys()) {
      if (this.#windows.size <= KEYS_KEPT) break;
      this.#windows.delete(key);
    }
  }
}
