import { grantedAmount, type Quantity, type Spent } from "../contract.ts";
import type { Holding, PurseOrder } from "./contract.ts";
import type { Waiting } from "./purse-group.ts";

/** Asks that follow each other so closely are answered with more ahead of need; after the longer time with nothing. */
const CLOSE_MS = 500;
const FAR_MS = 1_000;
/** Ahead of need at most so many times what is asked for. */
const AHEAD_MAX = 1_024;

const zero = (): Quantity => ({ money: 0, tokens: 0 });
const exceeds = (a: Quantity, b: Quantity): boolean => a.money > b.money || a.tokens > b.tokens;

/** What this instance holds in one purse: what its requests need (`used`), and a slice ahead of that. */
export class HeldPurse {
  readonly used = zero();
  /** What is held, once everything that was sent has arrived. Less than `used` where more has yet to be told. */
  readonly #held = zero();
  /** What the server was told last. */
  readonly #told = zero();
  /** News of what is spent that the server has not been told. */
  spent: Spent | null = null;
  readonly line: Waiting[] = [];
  isSending = false;
  /** Asks that wait for others to give back what they do not need. */
  recalls = 0;
  recalledAtMs = Number.NEGATIVE_INFINITY;
  #tightUntilMs = Number.NEGATIVE_INFINITY;
  /** All instances together may hold too much, because some have decided alone: what comes free must not be used. */
  #mayBeTooMuch = false;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #ahead = zero();
  /** What the message on its way asks for at most, and how much of that is held in case it was granted. */
  #asked = zero();
  #pending = zero();
  /** The least that was in the slice in this period, and in the one before. */
  #least = zero();
  #leastBefore = zero();

  constructor(readonly name: string) {}

  fits({ money, tokens }: Quantity): boolean {
    const { used } = this;
    const [held, pending] = [this.#held, this.#pending];
    return (
      held.money - used.money - pending.money >= money && held.tokens - used.tokens - pending.tokens >= tokens
    );
  }

  use({ money, tokens }: Quantity): void {
    const { used } = this;
    used.money += money;
    used.tokens += tokens;
    if (used.money <= 0 && used.tokens <= 0) used.money = used.tokens = 0;
    this.#lower();
  }

  #lower(): void {
    this.#least.money = Math.min(this.#least.money, this.#held.money - this.used.money);
    this.#least.tokens = Math.min(this.#least.tokens, this.#held.tokens - this.used.tokens);
  }

  /** A negative amount was spent: it is neither needed nor free. */
  letGo({ money, tokens }: Quantity): void {
    this.#held.money += Math.min(0, money);
    this.#held.tokens += Math.min(0, tokens);
    this.#lower();
  }

  learn(spent: Spent | null): void {
    if (spent && spent.version >= (this.spent?.version ?? 0)) this.spent = spent;
  }

  /** The server holds so much more for us. */
  got({ money, tokens }: Quantity): void {
    for (const held of [this.#held, this.#told]) {
      held.money += money;
      held.tokens += tokens;
    }
  }

  gotAhead(ahead: Quantity): void {
    this.got(ahead);
    this.#ahead = { ...ahead };
  }

  get hasSlice(): boolean {
    return exceeds(this.#held, this.used);
  }

  get needsTelling(): boolean {
    return (
      this.spent !== null ||
      exceeds(this.used, this.#held) ||
      this.#held.money !== this.#told.money ||
      this.#held.tokens !== this.#told.tokens
    );
  }

  /** Nothing is held, and nothing is to be said. */
  get isIdle(): boolean {
    const { used } = this;
    return (
      !this.isSending &&
      this.recalls === 0 &&
      this.line.length === 0 &&
      used.money === 0 &&
      used.tokens === 0 &&
      !this.needsTelling &&
      !this.hasSlice
    );
  }

  /** Whether what is not needed is given back at once. */
  isTightAt(nowMs: number): boolean {
    return this.#mayBeTooMuch || nowMs < this.#tightUntilMs;
  }

  tighten(untilMs: number): void {
    this.#tightUntilMs = untilMs;
  }

  /** The server has given what was asked for and has more. */
  hasPlenty(): void {
    this.#mayBeTooMuch = false;
  }

  /** Gives up the slice. */
  shrink(): void {
    this.#held.money = Math.min(this.#held.money, this.used.money);
    this.#held.tokens = Math.min(this.#held.tokens, this.used.tokens);
    this.#lower();
  }

  giveBackIdle(): void {
    const [now, before] = [this.#least, this.#leastBefore];
    const money = Math.max(0, Math.min(now.money, before.money));
    const tokens = Math.max(0, Math.min(now.tokens, before.tokens));
    this.#held.money -= money;
    this.#held.tokens -= tokens;
    this.#ahead.money = Math.max(0, this.#ahead.money - money);
    this.#ahead.tokens = Math.max(0, this.#ahead.tokens - tokens);
    this.#leastBefore = { money: now.money - money, tokens: now.tokens - tokens };
    this.#least = {
      money: this.#held.money - this.used.money,
      tokens: this.#held.tokens - this.used.tokens,
    };
  }

  /** What is told and asked next. The slice goes into it, so that nobody uses it while the answer is on its way. */
  order(asks: readonly Waiting[], nowMs: number): PurseOrder {
    if (asks.length > 0) this.shrink();
    this.isSending = true;
    for (const { cost, unitsMax } of asks) {
      const { money, tokens } = grantedAmount(cost, unitsMax);
      this.#asked.money += money;
      this.#asked.tokens += tokens;
    }
    const ahead = asks.length > 0 ? this.#wantedAhead(nowMs) : zero();
    return { ...this.#holding(), asks, ahead };
  }

  /** What is spent, and that nothing is held any more. */
  lastOrder(): PurseOrder {
    const { name, spent } = this;
    return { name, base: zero(), spent, asks: [], ahead: zero() };
  }

  #holding(): Holding {
    const base = {
      money: Math.max(this.#held.money, this.used.money),
      tokens: Math.max(this.#held.tokens, this.used.tokens),
    };
    Object.assign(this.#held, base);
    Object.assign(this.#told, base);
    const { name, spent } = this;
    return { name, base, spent };
  }

  /** So much of what was held in case it was granted has been granted. */
  gotPending({ money, tokens }: Quantity): void {
    this.#pending.money -= money;
    this.#pending.tokens -= tokens;
  }

  /** The message that was on its way is done. What was held in case it was granted, and was not, is nobody's. */
  done(): void {
    this.isSending = false;
    this.#held.money -= this.#pending.money;
    this.#held.tokens -= this.#pending.tokens;
    this.#lower();
    this.#asked = zero();
    this.#pending = zero();
  }

  /** The server knows what is spent. */
  hasTold(spent: Spent | null): void {
    if (this.spent === spent) this.spent = null;
  }

  #wantedAhead(nowMs: number): Quantity {
    const sinceMs = nowMs - this.#askedAtMs;
    this.#askedAtMs = nowMs;
    if (sinceMs >= FAR_MS) return zero();
    const more = (ahead: number, wanted: number): number =>
      Math.min(sinceMs < CLOSE_MS ? Math.max(2 * ahead, wanted) : ahead, AHEAD_MAX * wanted);
    return {
      money: more(this.#ahead.money, this.#asked.money),
      tokens: more(this.#ahead.tokens, this.#asked.tokens),
    };
  }

  /** Nothing is held but what is used, or may have been granted by an answer that is on its way. Null: nothing at all. */
  startOver(): Holding | null {
    this.#pending = { ...this.#asked };
    this.#held.money = this.used.money + this.#pending.money;
    this.#held.tokens = this.used.tokens + this.#pending.tokens;
    Object.assign(this.#told, this.#held);
    this.#lower();
    this.#mayBeTooMuch = true;
    const isEmpty = this.#held.money <= 0 && this.#held.tokens <= 0 && !this.spent;
    return isEmpty ? null : this.#holding();
  }
}
