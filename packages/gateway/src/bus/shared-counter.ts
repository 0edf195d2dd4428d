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
/** Asks in one message: others wait while it is decided. */
const ASKS_MAX = 256;
const NAMES_PER_ASK_MAX = 200;
/** After this many answers in a row that the instance is not known, it decides alone. */
const UNKNOWN_MAX = 4;
/** Former ids of this instance whose holds may still count; older ones have expired. */
const FORMER_MAX = 16;
/** The counter has lost everything: all instances send it their holds. */
const EMPTIED = "counter-emptied";

interface PendingAsk {
  ask: CounterAsk;
  resolve(answer: CounterAnswer): void;
}

const SELF = "self";
const ignore = (): void => {};
const NOTHING = { money: 0, tokens: 0 };

/** Sends asks to a server that counts for all instances, in batches. Without the server it decides alone, and reports later. */
export class SharedCounter implements Counter {
  readonly #own: MemoryCounter;
  /** What was spent while the server was away. */
  readonly #news = new BoundedMap<string, Spent>();
  #waiting: PendingAsk[] = [];
  #isScheduled = false;
  #isSending = false;
  #sent: Promise<void> = Promise.resolve();
  /** The server may know other holds than ours: it must be sent all, under a new id. */
  #mustEnter = true;
  #instance = "";
  #former: string[] = [];
  #unknown = 0;
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

  /** This instance knows only its own holds, so it may grant only its share of what is left. */
  #decideAlone(asked: readonly PendingAsk[]): void {
    if (asked.length === 0) return;
    this.#mustEnter = true;
    for (const { ask, resolve } of asked) {
      if ("change" in ask) this.#keepNews(ask.change);
      else resolve(this.#own.answer(SELF, ask, this.#sharers));
    }
  }

  #keepNews(changes: readonly ReservedChange[]): void {
    for (const { name, spent } of changes) if (spent) this.#news.set(name, spent);
  }

  /** Sends the server all holds under a new id, so that late messages under former ids no longer matter. */
  async #enter(): Promise<void> {
    const { server, bus, ids } = this.options;
    this.#mustEnter = false;
    if (this.#instance !== "") this.#former = [...this.#former, this.#instance].slice(-FORMER_MAX);
    this.#instance = ids.uuid();
    const { isNew, opensInMs } = await server.enter(this.#instance);
    if (isNew) bus.publish(EMPTIED, this.#instance);
    // Pending changes are part of `#own` already.
    this.#waiting = this.#waiting.filter(({ ask }) => {
      if ("change" in ask) this.#keepNews(ask.change);
      return !("change" in ask);
    });
    const news = Array.from(this.#news.entries(), ([name, spent]) => ({ name, amount: NOTHING, spent }));
    const changes = [...this.#own.heldBy(SELF), ...news];
    for (let at = 0; at < changes.length; at += NAMES_PER_ASK_MAX) {
      const ask = { change: changes.slice(at, at + NAMES_PER_ASK_MAX) };
      this.#mustEnter ||= (await server.ask(this.#instance, [ask])) === null;
    }
    if (this.#mustEnter) return;
    this.#news.clear();
    if (this.#former.length > 0) await server.leave(this.#former);
    this.#former = [];
    if (opensInMs > 0 && !this.#mustEnter) await this.#pause(opensInMs);
  }

  async #pause(delayMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#endPause = resolve;
      this.options.clock.after(delayMs, resolve);
    });
  }

  async open(): Promise<void> {
    await this.#send();
  }

  /** Reports what was spent, then releases all holds at once. */
  async close(): Promise<void> {
    for (const end of this.#ends) end();
    await this.#send();
    this.#isClosed = true;
    const { server } = this.options;
    if (server.available) await server.leave([...this.#former, this.#instance]).catch(() => {});
  }
}
