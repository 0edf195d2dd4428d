import { BoundedMap } from "../kernel/bounded.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import {
  type Asking,
  type Bus,
  type Counter,
  type Exceeded,
  type RateLimit,
  REFUSED,
  type ReservedChange,
  type Spent,
} from "./contract.ts";
import type { CounterAnswer, CounterAnswers, CounterAsk, CounterServer } from "./counter-server.ts";
import { MemoryCounter } from "./in-process/counter.ts";

const BEAT_MS = 5_000;
/** Asks in one message: what is decided in one step keeps everybody else waiting. */
const ASKS_MAX = 256;
const NAMES_PER_ASK_MAX = 200;
/** After so many answers in a row that the instance is not known, it decides alone. */
const UNKNOWN_MAX = 4;
/** Former ids of this instance whose holds may still be counted; older ones have expired. */
const FORMER_MAX = 16;
/** Tells the others that the counter has forgotten everything. */
const EMPTIED = "counter-emptied";

interface PendingAsk {
  ask: CounterAsk;
  resolve(answer: CounterAnswer): void;
}

const SELF = "self";
const ignore = (): void => {};
const NOTHING = { money: 0, tokens: 0 };

/** Asks a server that counts for all: one message at a time, with all that waits. Away: decides alone, and tells it later. */
export class SharedCounter implements Counter {
  readonly #own: MemoryCounter;
  /** What has been spent and the server may not know; told once it is back. */
  readonly #news = new BoundedMap<string, Spent>();
  #waiting: PendingAsk[] = [];
  #isScheduled = false;
  #isSending = false;
  #sent: Promise<void> = Promise.resolve();
  /** What the server knows may differ from what we hold: it is told everything, under a new id. */
  #mustEnter = true;
  #instance = "";
  #former: string[] = [];
  #unknown = 0;
  /** How many instances there were when the server answered last. */
  #sharers = 1;
  #endPause = ignore;
  #isClosed = false;
  readonly #ends: (() => void)[];

  constructor(readonly options: { server: CounterServer; bus: Bus; clock: Clock; ids: Ids; log: Log }) {
    const { bus, clock } = options;
    this.#own = new MemoryCounter(clock);
    bus.onGap(() => this.#enterSoon());
    this.#ends = [
      clock.every(BEAT_MS, () => this.change([])),
      bus.subscribe(EMPTIED, (by) => {
        if (by !== this.#instance) this.#enterSoon();
      }),
    ];
  }

  async hit(limits: readonly RateLimit[]): Promise<Exceeded | null> {
    const [at, waitMs] = await this.#ask({ hit: limits });
    return at === undefined ? null : { at, waitMs: waitMs! };
  }

  async grant(asking: Asking): Promise<number> {
    const [units] = await this.#ask({ grant: asking });
    return units!;
  }

  change(changes: readonly ReservedChange[]): void {
    this.#own.change(SELF, changes);
    const waiting = { ask: { change: changes }, resolve: ignore };
    if (this.options.server.available) this.#enqueue(waiting);
    else this.#decideAlone([waiting]);
  }

  #ask(ask: CounterAsk): Promise<CounterAnswer> {
    return new Promise((resolve) => this.#enqueue({ ask, resolve }));
  }

  #enqueue(waiting: PendingAsk): void {
    this.#waiting.push(waiting);
    this.#sendSoon();
  }

  #enterSoon(): void {
    this.#mustEnter = true;
    this.#endPause();
    this.#sendSoon();
  }

  /** At the end of this turn of the event loop. */
  #sendSoon(): void {
    if (this.#isScheduled || this.#isSending) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#send();
    });
  }

  #send(): Promise<void> {
    if (!this.#isSending) this.#sent = this.#sendAll();
    return this.#sent;
  }

  async #sendAll(): Promise<void> {
    const { server, log } = this.options;
    this.#isSending = true;
    let asked: PendingAsk[] = [];
    try {
      while (server.available && !this.#isClosed && (this.#mustEnter || this.#waiting.length > 0)) {
        if (this.#mustEnter) {
          await this.#enter();
          continue;
        }
        asked = this.#waiting.splice(0, ASKS_MAX);
        const said = await server.ask(
          this.#instance,
          asked.map(({ ask }) => ask),
        );
        if (said) this.#answered(asked, said);
        else this.#notKnown(asked);
        asked = [];
      }
    } catch (error) {
      this.#mustEnter = true;
      if (server.available) log.warn("asking the shared counter failed; counting locally", { error });
    }
    this.#isSending = false;
    this.#decideAlone([...asked, ...this.#waiting.splice(0)]);
  }

  #answered(asked: readonly PendingAsk[], { answers, instances }: CounterAnswers): void {
    this.#unknown = 0;
    this.#sharers = instances;
    for (const [at, { ask, resolve }] of asked.entries()) {
      const answer = answers[at]!;
      if ("grant" in ask && answer[0] !== REFUSED) this.#own.hold(SELF, ask.grant, answer[0]!);
      resolve(answer);
    }
  }

  #notKnown(asked: readonly PendingAsk[]): void {
    if (++this.#unknown >= UNKNOWN_MAX) {
      this.#unknown = 0;
      throw new Error("the shared counter forgets this instance again and again");
    }
    this.#mustEnter = true;
    this.#waiting.unshift(...asked);
    this.options.log.warn("the shared counter does not know this instance; it is told what is held");
  }

  /** This instance knows only what it holds itself, so it may promise only its part of what is left. */
  #decideAlone(asked: readonly PendingAsk[]): void {
    if (asked.length === 0) return;
    this.#mustEnter = true;
    for (const { ask, resolve } of asked) {
      if ("grant" in ask) resolve([this.#own.grant(SELF, ask.grant, this.#sharers)]);
      else if ("change" in ask) this.#keepNews(ask.change);
      else {
        const exceeded = this.#own.hit(ask.hit);
        resolve(exceeded ? [exceeded.at, exceeded.waitMs] : []);
      }
    }
  }

  #keepNews(changes: readonly ReservedChange[]): void {
    for (const { name, spent } of changes) if (spent) this.#news.set(name, spent);
  }

  /** Tells the server everything held here, under a new id, so that messages under former ids no longer matter. */
  async #enter(): Promise<void> {
    const { server, bus, ids } = this.options;
    this.#mustEnter = false;
    if (this.#instance !== "") this.#former = [...this.#former, this.#instance].slice(-FORMER_MAX);
    this.#instance = ids.uuid();
    const { isNew, opensInMs } = await server.enter(this.#instance);
    if (isNew) bus.publish(EMPTIED, this.#instance);
    // Changes that wait are part of what is held.
    this.#waiting = this.#waiting.filter(({ ask }) => {
      if ("change" in ask) this.#keepNews(ask.change);
      return !("change" in ask);
    });
    const news = Array.from(this.#news.entries(), ([name, spent]) => ({ name, amount: NOTHING, spent }));
    const told = [...this.#own.heldBy(SELF), ...news];
    for (let at = 0; at < told.length; at += NAMES_PER_ASK_MAX) {
      const ask = { change: told.slice(at, at + NAMES_PER_ASK_MAX) };
      this.#mustEnter ||= (await server.ask(this.#instance, [ask])) === null;
    }
    if (this.#mustEnter) return;
    this.#news.clear();
    if (this.#former.length > 0) await server.leave(this.#former);
    this.#former = [];
    if (opensInMs > 0 && !this.#mustEnter) await this.#pause(opensInMs);
  }

  /** Ends early when all has to be told again: another memory may open before that. */
  async #pause(delayMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#endPause = resolve;
      this.options.clock.after(delayMs, resolve);
    });
  }

  /** Resolves when the server knows this instance, or cannot be reached. */
  async open(): Promise<void> {
    await this.#send();
  }

  /** A clean shutdown frees at once what is held, after others have been told what was spent of it. */
  async close(): Promise<void> {
    for (const end of this.#ends) end();
    await this.#send();
    this.#isClosed = true;
    const { server } = this.options;
    if (server.available) await server.leave([...this.#former, this.#instance]).catch(() => {});
  }
}
