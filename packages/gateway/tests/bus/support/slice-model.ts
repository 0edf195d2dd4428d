/** Instances with the real code of slices, a server in memory, and a network and a clock that a seed decides on. */
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { Seeded } from "@model-gateway/testing/seeded.ts";
import {
  type Bus,
  grantedAmount,
  type Purse,
  type Quantity,
  type RateLimiter,
  REFUSED,
} from "../../../src/bus/contract.ts";
import { InProcessBus } from "../../../src/bus/in-process/bus.ts";
import { LEFT_PER_AHEAD, type LimitServer, type PurseServer } from "../../../src/bus/slices/contract.ts";
import { LimitGroup } from "../../../src/bus/slices/limit-group.ts";
import { ALIVE_MS, PurseGroup } from "../../../src/bus/slices/purse-group.ts";
import { SlicedReservations } from "../../../src/bus/slices/reservations.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { MemoryLimits, MemoryPurses } from "./memory-servers.ts";

const DELAY_MS_MAX = 4;
const ANSWER_WITHIN_MS = 500;
const STEP_MS_MAX = 12;
/** Now and then so much passes at once that slices go back and those who stopped are taken for dead. */
const LONG_STEP = { chance: 0.04, msMax: 6_000 };
export const NAMES = ["p", "q"] as const;
export const LIMIT_HITS = 60;
export const WINDOW_MS = 2_000;

export interface Faults {
  /** Chances in a step. */
  cut: number;
  die: number;
  pause: number;
  forget: number;
  /** Of a message between instances. */
  lose: number;
  /** Of a request that ends. */
  spend: number;
}

/** One request that was admitted. */
interface Held {
  units: number;
  names: readonly string[];
  cost: Quantity;
  /** Decided without the server, or freed as if its instance were dead: not what the server promises. */
  isExempt: boolean;
}

/** Messages arrive in order, later, or not at all when the line is cut. */
class Line {
  isUp = true;
  #cuts = 0;
  #lastMs = 0;
  #lastAnswerMs = 0;

  constructor(
    readonly model: Model,
    readonly process: PausableClock,
  ) {}

  call<T>(run: () => T, isBothWays = true): Promise<T> {
    const { clock, random } = this.model;
    const cuts = this.#cuts;
    return new Promise((resolve, reject) => {
      const fail = () => this.process.after(ANSWER_WITHIN_MS, () => reject(new Error("no answer")));
      const at = (from: number): number => {
        this.#lastMs = Math.max(this.#lastMs, from + random.next() * DELAY_MS_MAX);
        return this.#lastMs - clock.now();
      };
      clock.after(at(clock.now()), () => {
        // What was on its way when the line was cut may have arrived or not.
        if (cuts !== this.#cuts && random.next() < 0.5) return fail();
        const answer = run();
        if (cuts !== this.#cuts) return fail();
        const answered = () => (cuts === this.#cuts ? resolve(answer) : fail());
        this.#lastAnswerMs = Math.max(this.#lastAnswerMs, clock.now() + random.next() * DELAY_MS_MAX);
        if (isBothWays) this.process.after(this.#lastAnswerMs - clock.now(), answered);
        else this.process.whenRunning(answered);
      });
    });
  }

  cut(): void {
    this.#cuts++;
    this.isUp = false;
  }
}

class Instance {
  readonly bus = new InProcessBus();
  readonly line: Line;
  readonly clock: PausableClock;
  readonly held: Held[] = [];
  readonly hits: number[] = [];
  readonly reservations: SlicedReservations;
  readonly limits: LimitGroup;
  readonly #gaps = new Set<() => void>();
  isDead = false;
  /** How often it was cut off: decisions that were under way then are its own. */
  cuts = 0;
  asks = 0;

  constructor(readonly model: Model) {
    this.clock = new PausableClock(model.clock);
    this.line = new Line(model, this.clock);
    const { line, clock } = this;
    const { purses, limits } = model;
    const server: PurseServer = {
      get available() {
        return line.isUp;
      },
      hold: (id, orders) => line.call(() => purses.hold(id, structuredClone(orders.map(plain)))),
      enter: (id, before, holdings) => line.call(() => purses.enter(id, before, structuredClone(holdings))),
      beat: (id) => line.call(() => purses.beat(id)),
      leave: (id) => line.call(() => purses.leave(id)),
    };
    const limitServer: LimitServer = {
      get available() {
        return line.isUp;
      },
      hit: (orders) => line.call(() => limits.hit(orders), false),
    };
    const shared: Bus = {
      shared: true,
      connected: true,
      publish: (topic, message) => this.#publish(topic, message),
      subscribe: (topic, receive) => this.bus.subscribe(topic, receive),
      ready: async () => {},
      onGap: (forget) => this.#gaps.add(forget),
      close: async () => {},
    };
    const fallback: RateLimiter = { hit: () => 1 };
    const common = { bus: shared, clock, log: silentLog };
    this.reservations = new SlicedReservations(
      [new PurseGroup({ ...common, server, group: 0, ids: randomIds })],
      () => 0,
    );
    this.limits = new LimitGroup({ ...common, server: limitServer, fallback });
  }

  #publish(topic: string, message: string): void {
    const { model } = this;
    this.bus.publish(topic, message);
    for (const other of model.instances) {
      if (other === this || model.random.next() < model.faults.lose) continue;
      model.clock.after(model.random.next() * DELAY_MS_MAX, () =>
        other.clock.whenRunning(() => {
          if (!other.isDead && other.line.isUp) other.bus.publish(topic, message);
        }),
      );
    }
  }

  reconnect(): void {
    this.line.isUp = true;
    for (const forget of this.#gaps) forget();
  }

  used(name: string, which: (held: Held) => boolean = () => true): Quantity {
    const sum = { money: 0, tokens: 0 };
    for (const held of this.held) {
      if (!held.names.includes(name) || !which(held)) continue;
      sum.money += held.cost.money;
      sum.tokens += held.cost.tokens;
    }
    return sum;
  }

  /** Dead processes do nothing any more. */
  die(): void {
    this.isDead = true;
    this.clock.pause(Number.POSITIVE_INFINITY);
    this.held.length = 0;
  }
}

const plain = <T extends { asks: readonly object[] }>(order: T): T => ({
  ...order,
  asks: order.asks.map((ask) => ({ ...ask, resolve: undefined })),
});

/** Its timers do not run while the process is stopped, and time goes on. */
class PausableClock {
  #untilMs = 0;
  constructor(readonly clock: ManualClock) {}

  now = (): number => this.clock.now();
  elapsed = (): number => this.clock.elapsed();
  get isPaused(): boolean {
    return this.clock.now() < this.#untilMs;
  }
  pause(ms: number): void {
    this.#untilMs = this.clock.now() + ms;
  }
  whenRunning(run: () => void): void {
    if (!this.isPaused) run();
    else if (Number.isFinite(this.#untilMs))
      this.clock.after(this.#untilMs - this.clock.now(), () => this.whenRunning(run));
  }
  after = (delayMs: number, run: () => void): (() => void) =>
    this.clock.after(delayMs, () => this.whenRunning(run));
  every = (periodMs: number, run: () => void): (() => void) =>
    this.clock.every(periodMs, () => {
      if (!this.isPaused) run();
    });
}

export class Model {
  readonly clock = new ManualClock();
  readonly random: Seeded;
  readonly purses: MemoryPurses;
  readonly limits: MemoryLimits;
  readonly instances: Instance[] = [];
  readonly spent = new Map<string, Quantity & { version: number }>();
  /** Since when an instance holds so much more than it uses. */
  readonly #idleSince = new Map<string, number>();
  readonly problems: string[] = [];
  admitted = 0;
  refused = 0;
  /** Admitted without a message to the server. */
  atOnce = 0;

  constructor(
    seed: number,
    readonly limit: Quantity,
    readonly faults: Faults,
  ) {
    this.random = new Seeded(seed);
    const leftPerAhead = this.oneOf([LEFT_PER_AHEAD, 3, 1]);
    this.purses = new MemoryPurses(this.clock, leftPerAhead);
    this.limits = new MemoryLimits(this.clock, leftPerAhead);
    for (const name of NAMES) this.spent.set(name, { money: 0, tokens: 0, version: 0 });
    for (let i = 0; i < 3; i++) this.add();
  }

  add(): void {
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

  purse(name: string): Purse {
    return { name, limit: this.limit, spent: { ...this.spent.get(name)! }, unitsBeyond: null };
  }

  /** Runs what promises have led to. */
  async settle(): Promise<void> {
    for (let i = 0; i < 12; i++) await null;
  }

  async advance(ms: number): Promise<void> {
    const endMs = this.clock.now() + ms;
    while (this.clock.now() < endMs) {
      this.clock.advance(Math.min(1, endMs - this.clock.now()));
      await this.settle();
    }
    this.check();
  }

  async step(): Promise<void> {
    const { faults, random } = this;
    const instance = this.oneOf(this.living);
    const { isPaused } = instance.clock;
    const dice = random.next();
    if (dice < 0.5 && !isPaused) for (let n = this.below(6); n >= 0; n--) this.ask(instance);
    else if (dice < 0.7 && !isPaused) this.end(instance);
    else if (dice < 0.8 && !isPaused) for (let n = this.below(9); n >= 0; n--) this.hit(instance);
    else if (random.next() < faults.cut) this.cut(instance);
    else if (random.next() < faults.die && this.living.length > 2) {
      instance.die();
      this.add();
    } else if (random.next() < faults.pause && !isPaused) this.pause(instance);
    else if (random.next() < faults.forget) this.purses.forgetAll();
    await this.settle();
    await this.advance(this.below(random.next() < LONG_STEP.chance ? LONG_STEP.msMax : STEP_MS_MAX));
  }

  ask(instance: Instance): void {
    const names = this.oneOf([["p"], ["q"], ["p", "q"]]);
    const cost = {
      fixed: { money: 1 + this.below(4), tokens: this.below(3) },
      perUnit: { money: 1, tokens: 0 },
    };
    const unitsMin = this.below(2);
    const unitsMax = unitsMin + this.below(3);
    const { cuts } = instance;
    const nowMs = this.clock.now();
    const decided = (units: number) => {
      if (instance.isDead) return;
      if (units === REFUSED) return this.refuse(instance, names, grantedAmount(cost, unitsMin));
      this.admitted++;
      const isExempt = cuts !== instance.cuts || !instance.line.isUp;
      instance.held.push({ units, names, cost: grantedAmount(cost, units), isExempt });
      if (units > unitsMax || units < unitsMin) this.problems.push(`${units} units were granted`);
      this.check();
    };
    const purses = names.map((name) => this.purse(name));
    const granted = instance.reservations.grant({ purses, alsoOn: [], ...cost, unitsMin, unitsMax });
    if (typeof granted === "number") {
      this.atOnce++;
      decided(granted);
    } else void granted.then(decided);
    instance.asks = nowMs;
  }

  /** Nobody else may have had what was refused here for longer than a second, without a use for it. */
  refuse(instance: Instance, names: readonly string[], need: Quantity): void {
    this.refused++;
    const { cut, pause, die } = this.faults;
    // Those who are gone keep theirs until they are taken for dead.
    if (!instance.line.isUp || cut > 0 || pause > 0 || die > 0) return;
    const nowMs = this.clock.now();
    const isIdle = (name: string): boolean =>
      nowMs - (this.#idleSince.get(name) ?? nowMs) > 1_000 &&
      this.#free(name).money >= need.money &&
      this.#free(name).tokens >= need.tokens;
    if (names.every(isIdle)) this.problems.push(`refused ${JSON.stringify(need)} of ${names} that was idle`);
  }

  /** What nobody uses. */
  #free(name: string): Quantity {
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

  /** A request ends: it is given back, or spent and settled. */
  end(instance: Instance): void {
    const [held] = instance.held.splice(this.below(instance.held.length), 1);
    if (!held) return;
    const back = { money: -held.cost.money, tokens: -held.cost.tokens };
    const isSpent = !held.isExempt && this.random.next() < this.faults.spend;
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
    const { cuts } = instance;
    const counted = (waitMs: number) => {
      if (waitMs !== 0 || cuts !== instance.cuts || instance.isDead) return;
      instance.hits.push(this.clock.now());
      const all = this.instances
        .flatMap(({ hits }) => hits)
        .filter((at) => at > this.clock.now() - WINDOW_MS);
      if (all.length > LIMIT_HITS) this.problems.push(`${all.length} hits within a window`);
    };
    if (typeof waiting === "number") counted(waiting);
    else void waiting.then(counted);
  }

  cut(instance: Instance): void {
    instance.cuts++;
    instance.line.cut();
    this.clock.after(100 + this.below(2_000), () => instance.clock.whenRunning(() => instance.reconnect()));
  }

  pause(instance: Instance): void {
    const ms = this.oneOf([200, 3_000, ALIVE_MS + 2_000]);
    instance.clock.pause(ms);
    // Taken for dead: what it holds is given to others, as the operator's guide says.
    this.clock.after(ALIVE_MS - 5_100, () => {
      if (ms > ALIVE_MS) for (const held of instance.held) held.isExempt = true;
    });
  }

  check(): void {
    for (const name of NAMES) {
      const spent = this.spent.get(name)!;
      const used = this.used(name, ({ isExempt }) => !isExempt);
      for (const measure of ["money", "tokens"] as const)
        if (used[measure] + spent[measure] > this.limit[measure])
          this.problems.push(
            `${name}: ${used[measure]} ${measure} of ${this.limit[measure]} less ${spent[measure]}`,
          );
      const held = this.purses.heldBy(name);
      const all = this.used(name);
      if (held.money > all.money || held.tokens > all.tokens)
        this.#idleSince.set(name, this.#idleSince.get(name) ?? this.clock.now());
      else this.#idleSince.delete(name);
    }
  }

  /** When nothing goes on any more, everything can be had again, wherever it is asked for. */
  async quiet(): Promise<void> {
    await this.advance(ALIVE_MS + 4_000);
    for (const instance of this.living) while (instance.held.length > 0) this.end(instance);
    await this.advance(ALIVE_MS + 1_000);
    for (const name of NAMES) {
      const held = this.purses.heldBy(name);
      if (held.money !== 0 || held.tokens !== 0)
        this.problems.push(`${name}: ${JSON.stringify(held)} is held for nothing`);
      const { money, tokens } = this.#free(name);
      if (money < 0 || tokens < 0) continue;
      const fixed = { money, tokens };
      const whole = { purses: [this.purse(name)], alsoOn: [], fixed, perUnit: { money: 0, tokens: 0 } };
      let outcome: number | null = null;
      void Promise.resolve(
        this.oneOf(this.living).reservations.grant({ ...whole, unitsMin: 0, unitsMax: 0 }),
      ).then((units) => {
        outcome = units;
      });
      await this.advance(500);
      if (outcome !== 0) this.problems.push(`${name}: all that is free is refused (${outcome})`);
    }
  }
}
