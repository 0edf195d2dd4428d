/** Several instances that share limits in slices, what happens to them, and what must hold all the same. */
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { Seeded } from "@model-gateway/testing/seeded.ts";
import { type Cost, grantedAmount, type Purse, type Quantity, REFUSED } from "../../../src/bus/contract.ts";
import { LEFT_PER_AHEAD, type PurseOrder, SLICE_MS } from "../../../src/bus/slices/contract.ts";
import { MemoryLimits } from "../../../src/bus/slices/memory-limits.ts";
import { ALIVE_MS } from "../../../src/bus/slices/purse-group.ts";
import { ServerPurses, type SharedPurses, SupervisorPurses } from "./shared-purses.ts";
import { type Held, Instance, type World } from "./slice-instance.ts";
import { LIMIT_HITS, NAMES, Promises, WINDOW_MS } from "./slice-promises.ts";

const INSTANCES = 3;
/** For about so long a process stops: most often so long that it may be taken for dead. */
const STOPS_MS = [200, SLICE_MS, 2.5 * SLICE_MS, ALIVE_MS, ALIVE_MS, ALIVE_MS];
const STEP_MS_MAX = 12;
/** Now and then so much passes at once that slices go back and those who stopped are taken for dead. */
const LONG_STEP = { chance: 0.04, msMax: 6_000 };

export interface Faults {
  /** Chances that a step begins a story with this in it. */
  cut: number;
  die: number;
  pause: number;
  forget: number;
  /** Of a message between instances. */
  lose: number;
  /** Of a request that ends. */
  spend: number;
  /** The longest that a message takes. */
  delayMsMax: number;
}

export interface ModelOptions {
  seed: number;
  counts: "a server" | "a supervisor";
  limit: Quantity;
  faults: Faults;
}

/** Something that may be asked for. */
interface Wish extends Cost {
  names: readonly string[];
  unitsMin: number;
  unitsMax: number;
}

export class Model implements World {
  readonly clock = new ManualClock();
  readonly random: Seeded;
  readonly purses: SharedPurses;
  readonly limits: MemoryLimits;
  readonly limit: Quantity;
  readonly faults: Faults;
  readonly instances: Instance[] = [];
  readonly spent = new Map<string, Quantity & { version: number }>();
  readonly promises: Promises;
  admitted = 0;
  refused = 0;
  /** Admitted without a message to the server. */
  atOnce = 0;

  constructor({ seed, counts, limit, faults }: ModelOptions) {
    this.random = new Seeded(seed);
    this.limit = limit;
    this.faults = faults;
    // Servers that are more generous than the real ones give slices that last until everything is used.
    const leftPerAhead = this.oneOf([LEFT_PER_AHEAD, 3, 1]);
    this.purses = new (counts === "a server" ? ServerPurses : SupervisorPurses)({
      clock: this.clock,
      leftPerAhead,
      died: (id) => this.#takenForDead(id),
    });
    this.limits = new MemoryLimits(this.clock, {
      leftPerAhead,
      leftPerLong: this.oneOf([64, 8, 1]),
      windowPerLong: this.oneOf([6, 1, 0.4]),
    });
    for (const name of NAMES) this.spent.set(name, { money: 0, tokens: 0, version: 0 });
    this.promises = new Promises(this);
    for (let i = 0; i < INSTANCES; i++) this.#add();
  }

  get problems(): readonly string[] {
    return this.promises.problems;
  }

  told(instance: string, order: PurseOrder): void {
    this.promises.told(instance, order);
  }

  served(): void {
    this.promises.noteFree();
  }

  get delayMsMax(): number {
    return this.faults.delayMsMax;
  }

  get lose(): number {
    return this.faults.lose;
  }

  #add(): void {
    this.instances.push(new Instance(this));
  }

  get living(): Instance[] {
    return this.instances.filter(({ isDead }) => !isDead);
  }

  below(n: number): number {
    return Math.floor(this.random.next() * n);
  }

  oneOf<T>(values: readonly T[]): T {
    return values[this.below(values.length)]!;
  }

  #happens(chance: number): boolean {
    return this.random.next() < chance;
  }

  #purse(name: string): Purse {
    return { name, limit: this.limit, spent: { ...this.spent.get(name)! }, unitsBeyond: null };
  }

  /** Runs what promises have led to. */
  async settle(): Promise<void> {
    for (let i = 0; i < 12; i++) await null;
  }

  async advance(ms: number): Promise<void> {
    await this.settle();
    const endMs = this.clock.now() + ms;
    while (this.clock.now() < endMs) {
      const nextMs = Math.min(Math.max(this.clock.nextDueMs, this.clock.now()), endMs);
      this.clock.advance(nextMs - this.clock.now());
      await this.settle();
    }
    this.promises.check();
  }

  async step(): Promise<void> {
    const { cut, die, pause, forget } = this.faults;
    const dice = this.random.next();
    const instance = this.oneOf(this.living);
    if (dice < cut) this.#story(instance, (ms) => this.#cut(instance, ms), [20, 150, 400, 2_000]);
    else if (dice < cut + pause) this.#story(instance, (ms) => this.#pause(instance, ms), STOPS_MS);
    else if (dice < cut + pause + die) this.#die(instance);
    else if (dice < cut + pause + die + forget)
      this.#story(instance, () => this.purses.forget(), [20, 150, 400, 2_000]);
    else this.#act(instance);
    await this.advance(this.below(this.#happens(LONG_STEP.chance) ? LONG_STEP.msMax : STEP_MS_MAX));
  }

  /** What an instance does of its own accord. */
  #act(instance: Instance): void {
    if (!instance.canAct) return;
    const dice = this.random.next();
    if (dice < 0.5) for (let n = this.below(6); n >= 0; n--) this.ask(instance, this.#little());
    else if (dice < 0.53) this.ask(instance, this.#everything(this.#names()));
    else if (dice < 0.72) this.end(instance);
    else if (dice < 0.76) this.#endAll(instance);
    else for (let n = this.below(this.#happens(0.2) ? LIMIT_HITS : 9); n >= 0; n--) this.hit(instance);
  }

  /**
   * An instance that is busy, and so has slices; something happens to it, for about one of these times; others take
   * meanwhile what they can get; and as soon as it is over, it goes on as if nothing had been. Where slices are wrong,
   * that is when they do harm.
   */
  #story(instance: Instance, happen: (ms: number) => void, aboutMs: readonly number[]): void {
    const ms = this.oneOf(aboutMs) + this.below(this.oneOf([10, 1_000]));
    const later = (delayMs: number, run: () => void) => this.clock.after(delayMs, run);
    const busy = () => {
      for (let n = this.below(4); n >= 0; n--) this.#act(instance);
    };
    const warmMs = 5 * (1 + this.below(8));
    for (let atMs = 0; atMs < warmMs; atMs += 5) later(atMs, () => this.#act(instance));
    later(warmMs, () => {
      happen(ms);
      // At any time, or just before it is over: then those who may be taken for dead have been.
      for (const other of this.living)
        if (other !== instance) later(ms - this.below(this.oneOf([ms, 500])), () => this.#takeAll(other));
      later(ms, busy);
      for (let n = this.below(6); n >= 0; n--) later(ms + this.below(this.oneOf([60, 600])), busy);
      for (const other of this.living) later(ms + this.below(2 * SLICE_MS), () => this.#takeAll(other));
    });
  }

  #takeAll(instance: Instance): void {
    if (!instance.canAct) return;
    for (const name of NAMES) if (this.#happens(0.7)) this.ask(instance, this.#everything([name]));
    if (this.#happens(0.7)) for (let n = 0; n < LIMIT_HITS; n++) this.hit(instance);
  }

  #names(): readonly string[] {
    return this.oneOf([["p"], ["q"], ["p", "q"]]);
  }

  #little(): Wish {
    const unitsMin = this.below(2);
    return {
      names: this.#names(),
      fixed: { money: 1 + this.below(4), tokens: this.below(3) },
      perUnit: { money: 1, tokens: 0 },
      unitsMin,
      unitsMax: unitsMin + this.below(3),
    };
  }

  /** As much as there is. */
  #everything(names: readonly string[]): Wish {
    return {
      names,
      fixed: { money: 1, tokens: 0 },
      perUnit: this.oneOf([
        { money: 1, tokens: 0 },
        { money: 1, tokens: 1 },
      ]),
      unitsMin: 0,
      unitsMax: this.limit.money,
    };
  }

  ask(instance: Instance, { names, ...wish }: Wish): void {
    const { unitsMin, unitsMax } = wish;
    const { lapses } = instance;
    const wasUp = instance.line.isUp;
    const decided = (units: number) => {
      if (instance.isDead) return;
      if (units === REFUSED) {
        this.refused++;
        return this.promises.refused(names, grantedAmount(wish, unitsMin));
      }
      this.admitted++;
      const isExempt = lapses !== instance.lapses || !wasUp || !instance.line.isUp;
      instance.held.push({ names, cost: grantedAmount(wish, units), isExempt });
      if (units > unitsMax || units < unitsMin) this.promises.problems.push(`${units} units were granted`);
      this.promises.check();
    };
    const granted = instance.reservations.grant({
      ...wish,
      purses: names.map((name) => this.#purse(name)),
      alsoOn: [],
    });
    if (typeof granted === "number") {
      this.atOnce++;
      decided(granted);
    } else void granted.then(decided);
  }

  /** What nobody uses. */
  #unused(name: string): Quantity {
    const spent = this.spent.get(name)!;
    const used = this.used(name);
    return {
      money: this.limit.money - spent.money - used.money,
      tokens: this.limit.tokens - spent.tokens - used.tokens,
    };
  }

  used(name: string, which?: (held: Held) => boolean): Quantity {
    const sum = { money: 0, tokens: 0 };
    for (const instance of this.living) {
      const { money, tokens } = instance.used(name, which);
      sum.money += money;
      sum.tokens += tokens;
    }
    return sum;
  }

  #endAll(instance: Instance): void {
    while (instance.held.length > 0) this.end(instance);
  }

  /** A request ends: it is given back, or spent and settled. */
  end(instance: Instance): void {
    const [held] = instance.held.splice(this.below(instance.held.length), 1);
    if (!held) return;
    const back = { money: -held.cost.money, tokens: -held.cost.tokens };
    const isSpent = !held.isExempt && held.cost.money < 10 && this.#happens(this.faults.spend);
    instance.reservations.change(
      held.names.flatMap((name) => {
        if (!isSpent) return [{ name, amount: back }];
        const before = this.spent.get(name)!;
        const { money, tokens } = held.cost;
        const spent = {
          money: before.money + money,
          tokens: before.tokens + tokens,
          version: before.version + 1,
        };
        this.spent.set(name, spent);
        return [
          { name, amount: back },
          { name, amount: { money: 0, tokens: 0 }, spent },
        ];
      }),
    );
  }

  hit(instance: Instance): void {
    const waiting = instance.limits.hit("k", LIMIT_HITS, WINDOW_MS);
    const { lapses } = instance;
    const counted = (waitMs: number, atMs: number) => {
      if (lapses !== instance.lapses || instance.isDead) return;
      if (waitMs !== 0) return this.promises.hitRefused(atMs);
      instance.admitted();
      instance.hits.push(atMs);
      this.promises.hit(atMs);
    };
    if (typeof waiting === "number") counted(waiting, this.clock.now());
    else void waiting.then((waitMs) => counted(waitMs, instance.countedAtMs));
  }

  #cut(instance: Instance, ms: number): void {
    if (instance.isDead || !instance.line.isUp) return;
    instance.cut();
    this.clock.after(ms, () => instance.clock.whenRunning(() => instance.reconnect()));
  }

  #pause(instance: Instance, ms: number): void {
    if (instance.clock.isPaused) return;
    instance.clock.pause(ms);
  }

  /** What it holds is given to others, as the operator's guide says. */
  #takenForDead(id: string): void {
    const instance = this.instances.find((each) => each.id === id)!;
    instance.lapses++;
    for (const held of instance.held) held.isExempt = true;
  }

  #die(instance: Instance): void {
    if (this.living.length < INSTANCES) return;
    instance.die();
    this.#add();
  }

  /** When nothing goes on any more, everything can be had again, wherever it is asked for. */
  async quiet(): Promise<void> {
    await this.advance(ALIVE_MS + 4_000);
    for (const instance of this.living) this.#endAll(instance);
    await this.advance(ALIVE_MS + 1_000);
    for (const name of NAMES) {
      for (const [id, held] of this.purses.held(name))
        this.promises.problems.push(`${name}: ${JSON.stringify(held)} is held for nothing by ${id}`);
      const { money, tokens } = this.#unused(name);
      if (money < 0 || tokens < 0) continue;
      const whole = {
        purses: [this.#purse(name)],
        alsoOn: [],
        fixed: { money, tokens },
        perUnit: { money: 0, tokens: 0 },
      };
      let outcome: number | null = null;
      void Promise.resolve(
        this.oneOf(this.living).reservations.grant({ ...whole, unitsMin: 0, unitsMax: 0 }),
      ).then((units) => {
        outcome = units;
      });
      await this.advance(500);
      if (outcome !== 0) this.promises.problems.push(`${name}: all that is free is refused (${outcome})`);
    }
  }
}
