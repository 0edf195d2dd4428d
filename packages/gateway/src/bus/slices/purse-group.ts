import { inBackground } from "../../kernel/background.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { type Bus, grantedAmount, type Purse, type Quantity, REFUSED, type Spent } from "../contract.ts";
import { unitsIn } from "../in-process/reservations.ts";
import {
  CALM_MS,
  type Holding,
  type PurseAnswer,
  type PurseAsk,
  type PurseOrder,
  type PurseServer,
  RECALL,
  RECALL_WAIT_MS,
} from "./contract.ts";
import { HeldPurse } from "./held-purse.ts";

/** An instance without a heartbeat for this long counts as dead, and what it holds is freed. */
export const ALIVE_MS = 15_000;
const BEAT_MS = 5_000;
/** What is held ahead of need counts for this long after the server last answered: well before others may take it. */
const TRUSTED_MS = 10_000;
/** Small changes are batched; a change that a request depends on is sent at once. */
const CHANGE_DELAY_MS = 5;
const NAMES_PER_CALL_MAX = 200;
const PURSES_UNTOLD_MAX = 50_000;
const ASKS_PER_NAME_MAX = 64;
/** What was not needed for two of these goes back. */
const PERIOD_MS = 250;
/** How long holds pause after the server lost its data, so that every instance can send its sums again. */
const FORGOTTEN_PAUSE_MS = 50;
/** How often a request asks a server that does not know the instance, before it is decided here. */
const TRIES_MAX = 4;
/** The topics on which the first instance to notice a loss announces it, and on which a recall is asked for. */
const FORGOTTEN = "holds-forgotten";
const RECALLED = "holds-recalled";

interface PurseGroupOptions {
  server: PurseServer;
  /** Which of the groups this is; the same on every instance. */
  group: number;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** One request's ask that waits for its answer. */
export interface Waiting extends PurseAsk {
  tries: number;
  resolve(units: number): void;
}

/** A message on its way. */
interface Sent {
  purse: HeldPurse;
  asks: readonly Waiting[];
  order: PurseOrder;
}

/**
 * What this instance holds in the purses that one server counts. Part of it is needed by requests; the rest is a
 * slice, held ahead of need, from which requests are admitted without asking. For each purse at most one message is
 * on its way, and it says absolutely what is held.
 */
export class PurseGroup {
  readonly #purses = new Map<string, HeldPurse>();
  /** With asks that wait to be sent. */
  readonly #asking = new Set<HeldPurse>();
  /** Changed: to be told soon. */
  readonly #changed = new Set<HeldPurse>();
  /** With a slice. */
  readonly #ahead = new Set<HeldPurse>();
  /** The server knows what we hold under this id. Taking a new id discards any inconsistency under the old one. */
  #instance: string;
  #entering: Promise<void> | null = null;
  #isEnteringAgain = false;
  #isClosed = false;
  #endPause: (() => void) | null = null;
  /** Until then others may not have told a new memory what they hold. */
  #pauseUntilMs = Number.NEGATIVE_INFINITY;
  /** The memory of the server that we have entered. */
  #memory: string | null = null;
  /** What the server knows may differ from what we hold. */
  #uncertain = true;
  #confirmedAtMs = Number.NEGATIVE_INFINITY;
  #willAsk = false;
  #willTell = false;
  #cancelTelling: (() => void) | null = null;
  readonly #ends: (() => void)[];

  constructor(readonly options: PurseGroupOptions) {
    const { clock, bus, ids, group } = options;
    this.#instance = ids.uuid();
    bus.onGap(() => void this.enter());
    this.#ends = [
      clock.every(BEAT_MS, () => void this.#beat()),
      clock.every(PERIOD_MS, () => this.#giveBackIdle()),
      bus.subscribe(FORGOTTEN, (message) => {
        const [of, memory] = message.split("\n");
        if (of === String(group) && memory !== this.#memory) void this.enter();
      }),
      bus.subscribe(RECALLED, (name) => this.#recalled(name)),
    ];
  }

  /** Whether the purse's slice has room for `need`. */
  hasRoom(purse: Purse, need: Quantity): boolean {
    const held = this.#purses.get(purse.name);
    return held !== undefined && this.#isIn(held, purse, need);
  }

  /** A limit that was lowered since the slice was given counts as well. */
  #isIn(purse: HeldPurse, { limit, spent }: Pick<PurseAsk, "limit" | "spent">, need: Quantity): boolean {
    const { used } = purse;
    return (
      this.#isTrusted &&
      purse.fits(need) &&
      limit.money - spent.money - used.money >= need.money &&
      limit.tokens - spent.tokens - used.tokens >= need.tokens
    );
  }

  get #isTrusted(): boolean {
    const { server, clock } = this.options;
    return (
      !this.#uncertain &&
      this.#entering === null &&
      clock.elapsed() - this.#confirmedAtMs < TRUSTED_MS &&
      server.available
    );
  }

  /** As many units as fit, or `REFUSED`. */
  take(purse: Purse, ask: Pick<PurseAsk, "cost" | "unitsMin" | "unitsMax">): number | Promise<number> {
    const need = grantedAmount(ask.cost, ask.unitsMax);
    if (this.hasRoom(purse, need)) {
      this.change(purse.name, need);
      return ask.unitsMax;
    }
    const { limit, spent, unitsBeyond } = purse;
    const held = this.#purse(purse.name);
    return new Promise((resolve) => {
      held.line.push({ ...ask, limit, spent, unitsBeyond, isFinal: false, tries: 0, resolve });
      this.#askSoon(held);
    });
  }

  /**
   * Without checking limits. What was settled is spent from then on, so it does not become part of the slice: it goes
   * back together with the news of what is spent.
   */
  change(name: string, amount: Quantity, spent?: Spent, isSettled = false): void {
    const purse = this.#purse(name);
    purse.use(amount);
    if (isSettled) purse.letGo(amount);
    purse.learn(spent ?? null);
    if (this.options.server.available) this.#noticed(purse);
    else {
      this.#uncertain = true;
      // What is spent is told when the server is back, unless that is too much: then others read it in the database.
      if (this.#purses.size > PURSES_UNTOLD_MAX) purse.spent = null;
      this.#forgetIdle(purse);
    }
  }

  #purse(name: string): HeldPurse {
    let purse = this.#purses.get(name);
    if (!purse) {
      purse = new HeldPurse(name);
      this.#purses.set(name, purse);
    }
    return purse;
  }

  /** Decides what has to be done about a purse that has changed. */
  #noticed(purse: HeldPurse): void {
    if (purse.isTightAt(this.options.clock.elapsed())) purse.shrink();
    if (purse.needsTelling) {
      this.#changed.add(purse);
      // Others must know it even if this process is killed now: what it held may be freed before they read it.
      if (purse.spent) this.#tellNow();
      else this.#tellSoon();
    } else if (purse.hasSlice) this.#ahead.add(purse);
    else this.#forgetIdle(purse);
  }

  #forgetIdle(purse: HeldPurse): void {
    if (!purse.isIdle) return;
    for (const set of [this.#asking, this.#changed, this.#ahead]) set.delete(purse);
    this.#purses.delete(purse.name);
  }

  /** All asks of one turn of the event loop go in one message. */
  #askSoon(purse: HeldPurse): void {
    this.#asking.add(purse);
    if (this.#willAsk) return;
    this.#willAsk = true;
    queueMicrotask(() => {
      this.#willAsk = false;
      this.#send(this.#asking);
    });
  }

  /** At the end of this turn of the event loop. */
  #tellNow(): void {
    if (this.#willTell) return;
    this.#willTell = true;
    queueMicrotask(() => {
      this.#willTell = false;
      this.#send(this.#changed);
    });
  }

  #tellSoon(): void {
    this.#cancelTelling ??= this.options.clock.after(CHANGE_DELAY_MS, () => {
      this.#cancelTelling = null;
      this.#send(this.#changed);
    });
  }

  #send(purses: Set<HeldPurse>): void {
    // Everything is sent once it has entered.
    if (this.#entering || purses.size === 0) return;
    if (!this.options.server.available) {
      this.#decideAlone();
      return;
    }
    if (this.#uncertain) {
      void this.enter();
      return;
    }
    let batch: Sent[] = [];
    for (const purse of purses) {
      if (purse.isSending) continue;
      purses.delete(purse);
      const sent = this.#next(purse);
      if (sent) batch.push(sent);
      if (batch.length < NAMES_PER_CALL_MAX) continue;
      this.#hold(batch);
      batch = [];
    }
    if (batch.length > 0) this.#hold(batch);
  }

  #next(purse: HeldPurse): Sent | null {
    const nowMs = this.options.clock.elapsed();
    if (purse.isTightAt(nowMs)) purse.shrink();
    const asks = purse.line.splice(0, ASKS_PER_NAME_MAX);
    if (asks.length === 0 && !purse.needsTelling) {
      this.#noticed(purse);
      return null;
    }
    this.#changed.delete(purse);
    return { purse, asks, order: purse.order(asks, nowMs) };
  }

  #hold(batch: readonly Sent[]): void {
    const { server, clock, log } = this.options;
    const asInstance = this.#instance;
    const sentAtMs = clock.elapsed();
    const orders = batch.map(({ order }) => order);
    const held = server.hold(asInstance, orders).then(
      (answers) => {
        if (answers === null) return this.#askAgain(batch, asInstance);
        const isCurrent = asInstance === this.#instance;
        if (isCurrent) this.#confirmedAtMs = sentAtMs;
        for (const [index, sent] of batch.entries()) this.#answered(sent, answers[index]!, isCurrent);
      },
      (error) => {
        if (server.available) log.warn("shared hold failed; counting locally", { error });
        this.#uncertain = true;
        for (const { purse, asks } of batch) this.#decide(purse, asks);
      },
    );
    inBackground(log, "holding what instances share", held);
  }

  #answered({ purse, asks, order }: Sent, { units, ahead, isTight }: PurseAnswer, isCurrent: boolean): void {
    const { clock } = this.options;
    for (const [index, ask] of asks.entries()) {
      const granted = units[index]!;
      if (granted === RECALL) {
        this.#recall(purse, ask);
        continue;
      }
      if (granted !== REFUSED) {
        const amount = grantedAmount(ask.cost, granted);
        // If all was told under a new id while it was on its way, it was included there.
        if (isCurrent) purse.got(amount);
        else purse.gotPending(amount);
        purse.use(amount);
      }
      ask.resolve(granted);
    }
    if (isCurrent) {
      purse.gotAhead(ahead);
      purse.hasTold(order.spent);
    }
    if (isTight) purse.tighten(clock.elapsed() + CALM_MS);
    else if (isCurrent && asks.length > 0) purse.hasPlenty();
    this.#go(purse);
  }

  /** After a message the next one may go. What came meanwhile is taken from what has just been given. */
  #go(purse: HeldPurse): void {
    purse.done();
    const { line } = purse;
    for (let ask = line[0]; ask; ask = line[0]) {
      const need = grantedAmount(ask.cost, ask.unitsMax);
      if (!this.#isIn(purse, ask, need)) break;
      purse.use(need);
      ask.resolve(ask.unitsMax);
      line.shift();
    }
    if (line.length > 0) this.#askSoon(purse);
    this.#noticed(purse);
  }

  /** Others are asked for what they do not need before a request is lowered or refused. */
  #recall(purse: HeldPurse, ask: Waiting): void {
    const { bus, clock } = this.options;
    const nowMs = clock.elapsed();
    if (nowMs - purse.recalledAtMs >= RECALL_WAIT_MS) {
      purse.recalledAtMs = nowMs;
      bus.publish(RECALLED, purse.name);
    }
    ask.isFinal = true;
    purse.recalls++;
    clock.after(RECALL_WAIT_MS, () => {
      purse.recalls--;
      purse.line.push(ask);
      this.#askSoon(purse);
    });
  }

  #recalled(name: string): void {
    const purse = this.#purses.get(name);
    if (!purse) return;
    purse.tighten(this.options.clock.elapsed() + CALM_MS);
    purse.shrink();
    this.#changed.add(purse);
    this.#send(this.#changed);
  }

  #giveBackIdle(): void {
    for (const purse of this.#ahead) {
      purse.giveBackIdle();
      if (!purse.hasSlice) this.#ahead.delete(purse);
      this.#noticed(purse);
    }
  }

  /** The server does not know us: it is told, and asked again. */
  #askAgain(batch: readonly Sent[], asInstance: string): Promise<void> {
    for (const { purse, asks } of batch) {
      const [again, alone] = [asks.filter((ask) => ++ask.tries < TRIES_MAX), asks.filter(isTiredOfAsking)];
      purse.line.unshift(...again);
      this.#decide(purse, alone);
    }
    return this.#unknown(asInstance);
  }

  /** Without the server each instance knows only what it holds itself. */
  #decide(purse: HeldPurse, asks: readonly Waiting[]): void {
    for (const ask of asks) {
      const units = unitsIn(ask, purse.used);
      if (units !== REFUSED) purse.use(grantedAmount(ask.cost, units));
      this.#uncertain = true;
      ask.resolve(units);
    }
    this.#go(purse);
  }

  /** What is not told now is told with everything else, once the server is back. */
  #decideAlone(): void {
    this.#uncertain = true;
    this.#changed.clear();
    for (const purse of this.#asking)
      if (!purse.isSending) {
        this.#asking.delete(purse);
        this.#decide(purse, purse.line.splice(0));
      }
  }

  async #beat(): Promise<void> {
    const { server, clock } = this.options;
    if (!server.available) return;
    if (this.#uncertain) return this.#entering ?? this.enter();
    const asInstance = this.#instance;
    const sentAtMs = clock.elapsed();
    const known = await server.beat(asInstance).catch(() => null);
    if (known === false) await this.#unknown(asInstance);
    else if (known && asInstance === this.#instance) this.#confirmedAtMs = sentAtMs;
  }

  /** The server does not know this id: it lost its data, unless we have taken a new id since. */
  #unknown(asInstance: string): Promise<void> {
    if (this.#entering || asInstance !== this.#instance) return this.#entering ?? Promise.resolve();
    this.options.log.warn("the shared holds were lost; every instance sends its own again");
    return this.enter();
  }

  /**
   * Tells the server everything that this instance holds, under a new id. Holds wait for it. Where the server has
   * another memory than before, the others are told, and holds wait until they have entered, too.
   */
  enter(): Promise<void> {
    this.#isEnteringAgain = true;
    this.#endPause?.();
    this.#entering ??= this.#enter()
      .catch((error) => {
        this.options.log.warn("sending holds failed", { error });
        this.#decideAlone();
      })
      .finally(() => {
        this.#entering = null;
        this.#send(this.#asking);
        if (this.#changed.size > 0) this.#tellSoon();
      });
    return this.#entering;
  }

  /** Another server has taken over, perhaps without the last of what was told: all wait until everybody has told it. */
  enterElsewhere(): void {
    this.#memory = null;
    void this.enter();
  }

  async #enter(): Promise<void> {
    const { bus, clock, group } = this.options;
    while (this.#isEnteringAgain && !this.#isClosed) {
      this.#isEnteringAgain = false;
      const memory = await this.#tellAll().catch((error) => {
        // The line may have been replaced meanwhile.
        if (!this.#isEnteringAgain) throw error;
        return this.#memory;
      });
      if (this.#isEnteringAgain || this.#isClosed) continue;
      // An instance that enters a memory which others made finds what they hold in it.
      const isNew = this.#memory !== null || memory === memoryOf(this.#instance);
      if (memory !== this.#memory && isNew) {
        bus.publish(FORGOTTEN, `${group}\n${memory}`);
        this.#pauseUntilMs = clock.elapsed() + FORGOTTEN_PAUSE_MS;
      }
      this.#memory = memory;
      await this.#pause();
    }
    this.#uncertain = false;
  }

  /** Ends early when all has to be told again; what is left of it follows. */
  async #pause(): Promise<void> {
    const { clock } = this.options;
    const leftMs = this.#pauseUntilMs - clock.elapsed();
    if (leftMs <= 0) return;
    await new Promise<void>((resolve) => {
      const cancel = clock.after(leftMs, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
    this.#endPause = null;
  }

  /** Returns the name of the memory that all of it is in. */
  async #tellAll(): Promise<string> {
    const { server, ids, clock } = this.options;
    const before = this.#instance;
    const sentAtMs = clock.elapsed();
    this.#instance = ids.uuid();
    this.#uncertain = true;
    const holdings: Holding[] = [];
    for (const purse of this.#purses.values()) {
      const holding = purse.startOver();
      if (holding) holdings.push(holding);
      this.#forgetIdle(purse);
    }
    const memories = new Set<string>();
    for (let at = 0; at === 0 || at < holdings.length; at += NAMES_PER_CALL_MAX) {
      const some = holdings.slice(at, at + NAMES_PER_CALL_MAX);
      memories.add(await server.enter(this.#instance, before, some));
      for (const { name, spent } of some) this.#purses.get(name)?.hasTold(spent);
    }
    if (memories.size > 1) this.#isEnteringAgain = true;
    this.#confirmedAtMs = sentAtMs;
    return [...memories].at(-1)!;
  }

  /** A clean shutdown frees at once what is held, after others have been told what was spent of it. */
  async close(): Promise<void> {
    for (const end of this.#ends) end();
    this.#cancelTelling?.();
    this.#isClosed = true;
    this.#endPause?.();
    // Who entered has been told why it failed.
    await this.#entering?.catch(() => {});
    const { server } = this.options;
    const orders = [...this.#purses.values()].filter(({ spent }) => spent).map((purse) => purse.lastOrder());
    for (let at = 0; at < orders.length && server.available; at += NAMES_PER_CALL_MAX)
      await server.hold(this.#instance, orders.slice(at, at + NAMES_PER_CALL_MAX)).catch(() => {});
    if (server.available) await server.leave(this.#instance).catch(() => {});
  }
}

/** The name of a memory that the instance was the first to enter. */
export const memoryOf = (instance: string): string => `memory ${instance}`;

const isTiredOfAsking = ({ tries }: Waiting): boolean => tries >= TRIES_MAX;
