/** What must hold whatever happens to instances that share limits in slices. */
import type { Quantity } from "../../../src/bus/contract.ts";
import type { PurseOrder } from "../../../src/bus/slices/contract.ts";
import type { Model } from "./slice-model.ts";

/** The purses and the limit that instances share. */
export const NAMES = ["p", "q"] as const;
export const LIMIT_HITS = 60;
export const WINDOW_MS = 2_000;

/** What has not been used for longer than this must be had by others. */
export const IDLE_MS = 1_000;
/** Slices that have ended are told of by timers and messages. */
const LATE_MS = 300;

const NOTHING: Quantity = { money: 0, tokens: 0 };
const less = (a: Quantity, b: Quantity): Quantity => ({
  money: a.money - b.money,
  tokens: a.tokens - b.tokens,
});

/** How much was free lately. */
class FreeHistory {
  #sizes: (Quantity & { atMs: number })[] = [];

  add(size: Quantity & { atMs: number }): void {
    this.#sizes.push(size);
    // The last one before counts until the first one since.
    while ((this.#sizes[1]?.atMs ?? Number.POSITIVE_INFINITY) < size.atMs - IDLE_MS) this.#sizes.shift();
  }

  /** So much of what was free is somewhere else now. */
  lower({ money, tokens }: Quantity): void {
    for (const size of this.#sizes) {
      size.money = Math.max(0, size.money - money);
      size.tokens = Math.max(0, size.tokens - tokens);
    }
  }

  /** What was free all the time. */
  least(nowMs: number): Quantity {
    if (this.#sizes.length === 0 || this.#sizes[0]!.atMs > nowMs - IDLE_MS) return NOTHING;
    return {
      money: Math.min(...this.#sizes.map(({ money }) => money)),
      tokens: Math.min(...this.#sizes.map(({ tokens }) => tokens)),
    };
  }
}

export class Promises {
  readonly problems: string[] = [];
  /** What is free of each purse, at the server and in the slice of each instance. */
  readonly #free = new Map<string, FreeHistory>();

  constructor(readonly model: Model) {}

  /** What is used and spent does not exceed the limit. */
  check(): void {
    const { model } = this;
    for (const name of NAMES) {
      const spent = model.spent.get(name)!;
      const used = model.used(name, ({ isExempt }) => !isExempt);
      for (const measure of ["money", "tokens"] as const)
        if (used[measure] + spent[measure] > model.limit[measure])
          this.problems.push(
            `${name}: ${used[measure]} ${measure} of ${model.limit[measure]} less ${spent[measure]}`,
          );
    }
    this.noteFree();
  }

  noteFree(): void {
    const { model } = this;
    for (const name of NAMES) {
      const note = (where: string, free: Quantity) => {
        const history = this.#free.get(`${name} ${where}`) ?? new FreeHistory();
        this.#free.set(`${name} ${where}`, history);
        history.add({ atMs: model.clock.now(), ...free });
      };
      const held = model.purses.held(name);
      const left = less(model.limit, model.spent.get(name)!);
      note("at the server", [...held.values()].reduce(less, left));
      for (const instance of model.living)
        note(instance.id, less(held.get(instance.id) ?? NOTHING, instance.used(name)));
    }
  }

  /**
   * What an instance gives back is what has been idle there, and what came free since stays. One that asks has used up
   * its slice or gives back the rest of it, and gets another.
   */
  told(instance: string, { name, base, asks }: PurseOrder): void {
    const history = this.#free.get(`${name} ${instance}`);
    const { money, tokens } = less(this.model.purses.held(name).get(instance) ?? NOTHING, base);
    if (asks.length > 0) history?.add({ atMs: this.model.clock.now(), ...NOTHING });
    else history?.lower({ money: Math.max(0, money), tokens: Math.max(0, tokens) });
  }

  /** Instances that are gone keep theirs until they are taken for dead, and what is late comes too late. */
  get #isUnreachable(): boolean {
    const { cut, pause, die, delayMsMax } = this.model.faults;
    return cut > 0 || pause > 0 || die > 0 || delayMsMax > 10;
  }

  /** Nobody else may have had what was refused here for longer than a second, without a use for it. */
  refused(names: readonly string[], need: Quantity): void {
    if (this.#isUnreachable) return;
    this.check();
    const isIdle = (name: string): boolean => {
      const idle = this.#idle(name);
      return idle.money >= need.money && idle.tokens >= need.tokens;
    };
    if (names.every(isIdle)) this.problems.push(`refused ${JSON.stringify(need)} of ${names} that was idle`);
  }

  /** What was free for long, at the server or in slices. */
  #idle(name: string): Quantity {
    const idle = { money: 0, tokens: 0 };
    for (const [key, history] of this.#free) {
      if (!key.startsWith(name)) continue;
      const { money, tokens } = history.least(this.model.clock.now());
      idle.money += money;
      idle.tokens += tokens;
    }
    return idle;
  }

  /** No window that has this hit in it has more than the limit. */
  hit(atMs: number): void {
    const near = this.model.instances
      .flatMap(({ hits }) => hits)
      .filter((each) => Math.abs(each - atMs) < WINDOW_MS)
      .sort((a, b) => a - b);
    for (let last = LIMIT_HITS; last < near.length; last++)
      if (near[last]! - near[last - LIMIT_HITS]! < WINDOW_MS) {
        this.problems.push(`more than ${LIMIT_HITS} hits within a window`);
        return;
      }
  }

  /** A hit is refused only where the hits and slices that may count at this moment make up the limit. */
  hitRefused(atMs: number): void {
    if (this.#isUnreachable) return;
    const mayCount = this.model.instances
      .flatMap(({ counted, slices }) => [...counted, ...slices])
      .filter(({ untilMs }) => untilMs > atMs - LATE_MS);
    if (mayCount.reduce((sum, { hits }) => sum + hits, 0) < LIMIT_HITS)
      this.problems.push("a hit was refused although slices were idle");
  }
}
