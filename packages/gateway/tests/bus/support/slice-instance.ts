/** One instance with the real code of slices, on a network and a clock that a seed decides on. */
import type { ManualClock } from "@model-gateway/testing/clock.ts";
import type { Seeded } from "@model-gateway/testing/seeded.ts";
import type { Bus, Quantity, RateLimiter } from "../../../src/bus/contract.ts";
import { InProcessBus } from "../../../src/bus/in-process/bus.ts";
import type { LimitServer, PurseOrder, PurseServer } from "../../../src/bus/slices/contract.ts";
import { LimitGroup } from "../../../src/bus/slices/limit-group.ts";
import type { MemoryLimits } from "../../../src/bus/slices/memory-limits.ts";
import { PurseGroup } from "../../../src/bus/slices/purse-group.ts";
import { SlicedReservations } from "../../../src/bus/slices/reservations.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import type { SharedPurses } from "./shared-purses.ts";
import { IDLE_MS, WINDOW_MS } from "./slice-promises.ts";

const ANSWER_WITHIN_MS = 500;

/** What an instance is in. */
export interface World {
  readonly clock: ManualClock;
  readonly random: Seeded;
  readonly purses: SharedPurses;
  readonly limits: MemoryLimits;
  readonly instances: readonly Instance[];
  /** The longest that a message takes. */
  readonly delayMsMax: number;
  /** The chance that a message between instances is lost. */
  readonly lose: number;
  /** The instance tells the server what it holds of a purse, and asks for more. */
  told(instance: string, order: PurseOrder): void;
  /** The server has changed what it knows of purses. */
  served(): void;
}

/** One request that was admitted. */
export interface Held {
  names: readonly string[];
  cost: Quantity;
  /** Decided without the server, or freed as if its instance were dead: not what the server promises. */
  isExempt: boolean;
}

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
  /** What fell due several times meanwhile runs once, as a process's timers do. */
  every = (periodMs: number, run: () => void): (() => void) => {
    let isWaiting = false;
    return this.clock.every(periodMs, () => {
      if (isWaiting) return;
      isWaiting = true;
      this.whenRunning(() => {
        isWaiting = false;
        run();
      });
    });
  };
}

/** Messages arrive in order, later, or not at all when the line is cut. */
class Line {
  isUp = true;
  #cuts = 0;
  #lastMs = 0;
  #lastAnswerMs = 0;

  constructor(
    readonly world: World,
    readonly process: PausableClock,
  ) {}

  call<T>(run: () => T): Promise<T> {
    const { clock, random, delayMsMax } = this.world;
    const cuts = this.#cuts;
    return new Promise((resolve, reject) => {
      const fail = () => this.process.after(ANSWER_WITHIN_MS, () => reject(new Error("no answer")));
      this.#lastMs = Math.max(this.#lastMs, clock.now() + random.next() * delayMsMax);
      clock.after(this.#lastMs - clock.now(), () => {
        // What was on its way when the line was cut may have arrived or not.
        if (cuts !== this.#cuts && random.next() < 0.5) return fail();
        const answer = run();
        if (cuts !== this.#cuts) return fail();
        this.#lastAnswerMs = Math.max(this.#lastAnswerMs, clock.now() + random.next() * delayMsMax);
        this.process.after(this.#lastAnswerMs - clock.now(), () =>
          cuts === this.#cuts ? resolve(answer) : fail(),
        );
      });
    });
  }

  cut(): void {
    this.#cuts++;
    this.isUp = false;
  }
}

export class Instance {
  readonly id = randomIds.uuid();
  readonly bus = new InProcessBus();
  readonly line: Line;
  readonly clock: PausableClock;
  readonly held: Held[] = [];
  readonly hits: number[] = [];
  /** Hits that the server counted or that were taken from slices, and slices: until when they may count. */
  readonly counted: { untilMs: number; hits: number }[] = [];
  readonly slices: { untilMs: number; hits: number; endMs: number }[] = [];
  /** Hits that the server has counted and that are about to be admitted. */
  #due = 0;
  /** When the server last counted hits of this instance. */
  countedAtMs = 0;
  readonly reservations: SlicedReservations;
  readonly limits: LimitGroup;
  readonly #gaps = new Set<() => void>();
  isDead = false;
  /** How often it was cut off or taken for dead: decisions that were under way then are its own. */
  lapses = 0;

  constructor(readonly world: World) {
    this.clock = new PausableClock(world.clock);
    this.line = new Line(world, this.clock);
    const { line, clock, id } = this;
    const { purses, limits } = world;
    const serve = <T>(run: () => T): Promise<T> =>
      line.call(() => {
        const answer = run();
        world.served();
        return answer;
      });
    const server: PurseServer = {
      get available() {
        return line.isUp;
      },
      hold: (as, orders) => {
        const sent = structuredClone(orders.map(plain));
        return serve(() => {
          for (const order of sent) world.told(id, order);
          return purses.hold(as, sent);
        });
      },
      enter: (as, before, holdings) => {
        const sent = structuredClone(holdings);
        return serve(() => purses.enter({ instance: id, as, before }, sent));
      },
      beat: (as) => line.call(() => purses.beat(as)),
      leave: (as) => serve(() => purses.leave(as)),
    };
    const limitServer: LimitServer = {
      get available() {
        return line.isUp;
      },
      hit: (orders) =>
        line
          .call(() => {
            this.countedAtMs = world.clock.now();
            const answers = limits.hit(orders);
            for (const { counted, ahead, sliceMs } of answers) {
              this.counted.push({ untilMs: this.countedAtMs + WINDOW_MS, hits: counted });
              if (ahead === 0) continue;
              const endMs = this.countedAtMs + sliceMs;
              this.slices.push({ untilMs: Math.min(endMs, this.countedAtMs + IDLE_MS), hits: ahead, endMs });
            }
            return answers;
          })
          .then((answers) => {
            for (const { counted } of answers) this.#due += counted;
            return answers;
          }),
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

  /** A hit that the server has not counted was taken from the last slice, and is counted as of its end. */
  admitted(): void {
    if (this.#due > 0) {
      this.#due--;
      return;
    }
    const slice = this.slices.at(-1)!;
    slice.untilMs = Math.min(slice.endMs, this.world.clock.now() + IDLE_MS);
    this.counted.push({ untilMs: slice.endMs + WINDOW_MS, hits: 1 });
  }

  get canAct(): boolean {
    return !this.isDead && !this.clock.isPaused;
  }

  #publish(topic: string, message: string): void {
    const { instances, random, clock, lose, delayMsMax } = this.world;
    this.bus.publish(topic, message);
    for (const other of instances) {
      if (other === this || random.next() < lose) continue;
      clock.after(random.next() * delayMsMax, () =>
        other.clock.whenRunning(() => {
          if (!other.isDead && other.line.isUp) other.bus.publish(topic, message);
        }),
      );
    }
  }

  cut(): void {
    this.lapses++;
    this.line.cut();
    this.world.purses.lost(this.id);
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
    // What was on its way arrives before the end of the connection is noticed.
    void this.line.call(() => this.world.purses.lost(this.id));
  }
}

/** As it travels. */
const plain = <T extends { asks: readonly object[] }>(order: T): T => ({
  ...order,
  asks: order.asks.map((ask) => ({ ...ask, resolve: undefined })),
});
