import {
  type Asking,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  type Reservations,
  type Spent,
} from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { NANO_PER_USD, nextMonthMs, utcMonth, WHOLE_USER } from "../usage/index.ts";
import type { HoldKind } from "./journal/codec.ts";
import { exactNanoPoints, NANO_PER_POINT } from "./points.ts";
import { type QuotaWindow, type QuotaWindows, spentOf } from "./windows.ts";

/** How long a request waits for a check whose facts are not in memory; then it is let through. */
const CHECK_TIMEOUT_MS = 500;
/** After a failed check the next ones do not wait at all for this long. */
const UNKNOWN_FOR_MS = 1_000;
/** How far the bound of the request that crosses a quota's line may go beyond what is left, in output tokens. */
export const TOKENS_BEYOND_QUOTA = 1_024;
/** A check that asked for this many facts goes in circles. */
const ROUNDS_MAX = 16;

export interface AdmissionOptions {
  clock: Clock;
  log: Log;
  balances: Balances;
  windows: QuotaWindows;
  reservations: Reservations;
  pointsPerUsd: number;
  /** Lets the tier's quota pay what it can of the payer's debt. */
  payDebt(payer: Payer): Promise<void>;
}

/** What a request may take: a part that is certain, and so much for each output token. */
export interface Demand {
  payer: Payer;
  tier: Tier;
  /** In nano-dollars and tokens; no money when the model has no price. */
  readonly fixed: Quantity;
  readonly perToken: Quantity;
  /** Output tokens: what is asked for, and the least that it can be lowered to. */
  tokensMax: number;
  tokensMin: number;
  hasPrice: boolean;
}

/** What pays for a request: points, the tier's quota, or nothing that needs reserving. */
export interface Cover {
  readonly kind: HoldKind;
  /** Output tokens that it is held for. */
  readonly tokens: number;
  /** Reserves enough for this much in all; false when there is no more. */
  grow(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean>;
  /** Gives the reservation back. */
  end(): void;
}

const NO_LIMIT = Number.POSITIVE_INFINITY;
const NO_NAMES: readonly string[] = [];
export const POINTS_LIMIT: Quantity = { money: 0, tokens: NO_LIMIT };

const nothing = ({ tokensMax }: Demand): Cover => ({
  kind: "none",
  tokens: tokensMax,
  grow: () => true,
  end() {},
});

/** Where a hold is taken, and how a cost counts there. */
interface Source {
  kind: "points" | "quota";
  /** As they are now. */
  purses(): Purse[];
  alsoOn: readonly string[];
  scaled(amount: Quantity): Quantity;
}

type Verdict = Cover | Missing | Promise<Cover | Missing>;

/** Facts that are not in memory: the check goes on once they were read. */
class Missing {
  constructor(readonly load: () => Promise<unknown>) {}
}

/** The windows that a request counts in: those whose quota limits it, and the rest. */
export interface CountedWindows {
  limiting: readonly QuotaWindow[];
  names: readonly string[];
  purses(limit: Quantity): Purse[];
  alsoOn: readonly string[];
}

/** Decides whether, and by what, a request is paid. */
export class AdmissionCheck {
  #unknownUntilMs = 0;
  #month = { name: "", untilMs: 0, fromMs: 0 };

  constructor(readonly options: AdmissionOptions) {}

  /** The current UTC month; computed once a month, because every request asks. */
  #monthAt(nowMs: number): string {
    if (nowMs >= this.#month.untilMs || nowMs < this.#month.fromMs) {
      this.#month = { name: utcMonth(nowMs), fromMs: nowMs, untilMs: nextMonthMs(nowMs) };
    }
    return this.#month.name;
  }

  /**
   * A key is limited by its project's window and by that of all the user's keys together, or labels would multiply
   * the quota; it counts in the whole user's, too. A signed-in person is limited by the whole user's alone.
   */
  windowsOf({ userId, project }: Pick<Payer, "userId" | "project">, atMs: number): CountedWindows {
    const month = this.#monthAt(atMs);
    const { windows } = this.options;
    const whole = windows.get({ userId, month, project: WHOLE_USER });
    const purse = (name: string, used: Quantity, limit: Quantity): Purse => ({
      name,
      limit,
      spent: spentOf(used),
      unitsBeyond: TOKENS_BEYOND_QUOTA,
    });
    if (project === null) {
      return {
        limiting: [whole],
        names: [whole.name],
        purses: (limit) => [purse(whole.name, whole.used!.all, limit)],
        alsoOn: NO_NAMES,
      };
    }
    const own = windows.get({ userId, month, project });
    return {
      limiting: [own, whole],
      names: [own.name, whole.keysName, whole.name],
      purses: (limit) => [
        purse(own.name, own.used!.all, limit),
        purse(whole.keysName, whole.used!.byKeys, limit),
      ],
      alsoOn: [whole.name],
    };
  }

  /** Reserves what the request may cost, or throws the refusal; a promise only when something must be asked. */
  check(demand: Demand): Cover | Promise<Cover> {
    const verdict = this.#decide(demand);
    return verdict instanceof Missing || verdict instanceof Promise
      ? this.#checkLater(demand, verdict)
      : verdict;
  }

  async #checkLater(demand: Demand, first: Verdict): Promise<Cover> {
    const { clock, log } = this.options;
    let verdict = await first;
    for (let round = 0; round < ROUNDS_MAX; round++) {
      if (!(verdict instanceof Missing)) return verdict;
      try {
        if (clock.now() < this.#unknownUntilMs) return nothing(demand);
        await this.#withinDeadline(verdict.load());
      } catch (error) {
        // Better a request that is not checked than one that is refused because a database is away.
        this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
        log.error("quota check failed; the request is let through", { user_id: demand.payer.userId, error });
        return nothing(demand);
      }
      verdict = await this.#decide(demand);
    }
    throw new Error("the quota check does not come to an end");
  }

  async #withinDeadline(work: Promise<unknown>): Promise<void> {
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = this.options.clock.after(CHECK_TIMEOUT_MS, () =>
        reject(new Error(`no answer from the database within ${CHECK_TIMEOUT_MS} ms`)),
      );
    });
    try {
      await Promise.race([work, late]);
    } finally {
      cancel();
    }
  }

  #decide(demand: Demand): Verdict {
    const { payer, tier, hasPrice } = demand;
    const account = accountOf(payer);
    const balance = this.#balance(account);
    if (balance instanceof Missing) return balance;
    const owed = balance.debts?.[payer.userId] ?? 0;
    if (owed > 0) return this.#indebted(demand, owed);
    const points = hasPrice && balance.balance > 0 ? this.#points(payer, account, balance) : null;
    const limit = limitOf(tier);
    if (points === null && limit === null) return nothing(demand);
    const quota = limit && this.#quota(payer, limit);
    if (quota instanceof Missing) return quota;
    return this.#tryFrom(0, { demand, points, quota, balance });
  }

  /**
   * Points first, then the quota, each for the whole bound; only when neither has room for it, as much of it as one
   * of them has room for.
   */
  #tryFrom(
    step: number,
    facts: { demand: Demand; points: Source | null; quota: Source | null; balance: Balance },
  ): Verdict {
    const { demand, points, quota, balance } = facts;
    for (let at = step; at < 4; at++) {
      const isWhole = at < 2;
      const source = at % 2 === 0 ? points : quota;
      if (source === null) {
        if (at === 1) return nothing(demand);
        continue;
      }
      if (!isWhole && demand.tokensMin >= demand.tokensMax) continue;
      const asking = this.#askingOf(source, demand, isWhole ? demand.tokensMax : demand.tokensMin);
      const granted = this.options.reservations.grant(asking);
      if (granted instanceof Promise) {
        const next = at + 1;
        return granted.then((tokens) =>
          tokens === REFUSED ? this.#tryFrom(next, facts) : this.#hold(facts, { source, asking, tokens }),
        );
      }
      if (granted !== REFUSED) return this.#hold(facts, { source, asking, tokens: granted });
    }
    return this.#refuse(balance);
  }

  #askingOf(source: Source, { fixed, perToken, tokensMax }: Demand, tokensMin: number): Asking {
    return {
      purses: source.purses(),
      alsoOn: source.alsoOn,
      fixed: source.scaled(fixed),
      perUnit: source.scaled(perToken),
      unitsMin: tokensMin,
      unitsMax: tokensMax,
    };
  }

  #hold(
    { demand, quota }: { demand: Demand; quota: Source | null },
    { source, asking, tokens }: { source: Source; asking: Asking; tokens: number },
  ): Cover {
    const amount = grantedAmount(asking, tokens);
    return new Held(this.options.reservations, { demand, source, quota, amount, tokens });
  }

  #points(payer: Payer, account: AccountRef, balance: Balance): Source {
    const { pointsPerUsd } = this.options;
    const name = accountKey(account);
    const purses = (): Purse[] => {
      const known = this.options.balances.last(account) ?? balance;
      return [{ name, limit: POINTS_LIMIT, spent: spentPoints(known), unitsBeyond: null }];
    };
    const { costMultiplierMicros } = payer;
    const scaled = ({ money }: Quantity): Quantity => ({
      money: exactNanoPoints(money, costMultiplierMicros, pointsPerUsd),
      tokens: 0,
    });
    return { kind: "points", purses, alsoOn: NO_NAMES, scaled };
  }

  #quota(payer: Payer, limit: Quantity): Source | Missing {
    const { clock, windows } = this.options;
    const counted = this.windowsOf(payer, clock.now());
    for (const window of counted.limiting) {
      if (!windows.isKnown(window)) return new Missing(() => readAll(windows, counted.limiting));
    }
    return {
      kind: "quota",
      purses: () => counted.purses(limit),
      alsoOn: counted.alsoOn,
      scaled: (amount) => amount,
    };
  }

  /** Nothing is admitted while a debt stands. A quota that is not drained pays it first; a new month's is not. */
  #indebted({ payer, tier }: Demand, owed: number): Verdict {
    const { clock, windows, pointsPerUsd } = this.options;
    const whole = windows.get({
      userId: payer.userId,
      month: this.#monthAt(clock.now()),
      project: WHOLE_USER,
    });
    if (!windows.isKnown(whole)) return new Missing(() => windows.read(whole));
    const mayPay = clock.now() >= this.#unknownUntilMs;
    const left = leftForDebt(limitOf(tier), whole.used!);
    if (mayPay && left * pointsPerUsd >= NANO_PER_USD) return new Missing(() => this.#payDebt(payer));
    return this.#refuseDebt(payer, owed);
  }

  async #payDebt(payer: Payer): Promise<void> {
    const { clock, log, balances } = this.options;
    try {
      await this.options.payDebt(payer);
      await balances.load(accountOf(payer));
    } catch (error) {
      // The debt is known, so the request is not one that cannot be checked.
      this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
      log.warn("a debt could not be paid by the quota", { user_id: payer.userId, error });
    }
  }

  /** What the account holds; an old figure is used while a newer one is read behind it. */
  #balance(account: AccountRef): Balance | Missing {
    const { balances, clock, log } = this.options;
    const confirmed = balances.peek(account);
    if (confirmed) return confirmed;
    const last = balances.last(account);
    if (!last) return new Missing(() => balances.load(account));
    if (clock.now() >= this.#unknownUntilMs) {
      balances.load(account).catch((error) => {
        this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
        log.warn("balance not read again; the known one stays in force", {
          account: accountKey(account),
          error,
        });
      });
    }
    return last;
  }

  get #retryAfterSeconds(): number {
    const nowMs = this.options.clock.now();
    return Math.max(1, Math.ceil((nextMonthMs(nowMs) - nowMs) / 1000));
  }

  #refuse({ everCredited }: Balance): never {
    const retryAfterSeconds = this.#retryAfterSeconds;
    if (everCredited) {
      fail(
        "payment_required",
        "Neither the points nor what is left of this month's quota cover this request; top up, ask for fewer tokens (max_tokens) or send less, or wait until a new month begins (UTC)",
        { retryAfterSeconds },
      );
    }
    fail(
      "quota_exceeded",
      "This month's quota is used up, or too little of it is left for this request; ask for fewer tokens (max_tokens) or send less, ask for a higher tier, or wait until a new month begins (UTC)",
      { retryAfterSeconds },
    );
  }

  #refuseDebt({ groupId }: Payer, owed: number): never {
    const where = groupId === null ? "" : " on the group's pool";
    const topup = groupId === null ? "points in your wallet" : "a top-up of the pool";
    fail(
      "payment_required",
      `You owe ${owed} points${where} for requests that neither points nor the quota covered; ${topup} or the quota of the next month (UTC) pays this first`,
      { retryAfterSeconds: this.#retryAfterSeconds, data: { debt_points: owed } },
    );
  }
}

const readAll = (windows: QuotaWindows, wanted: readonly QuotaWindow[]): Promise<unknown> =>
  Promise.all(wanted.filter(({ used }) => used === null).map((window) => windows.read(window)));

interface HeldOptions {
  demand: Demand;
  source: Source;
  /** What else may pay when the points have no more. */
  quota: Source | null;
  amount: Quantity;
  tokens: number;
}

/** A reservation of one request. */
class Held implements Cover {
  readonly tokens: number;
  #source: Source;
  #amount: Quantity;
  #ended = false;

  constructor(
    readonly reservations: Reservations,
    readonly options: HeldOptions,
  ) {
    this.tokens = options.tokens;
    this.#source = options.source;
    this.#amount = options.amount;
  }

  get kind(): HoldKind {
    return this.#source.kind;
  }

  grow(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean> {
    const grown = this.#growIn(this.#source, total, this.#amount);
    const { quota } = this.options;
    // What the points cannot cover as a whole is the quota's as a whole.
    const otherwise = () =>
      this.#source.kind === "points" && quota ? this.#growIn(quota, total, NOTHING_HELD) : false;
    if (grown instanceof Promise) return grown.then((done) => done || otherwise());
    return grown || otherwise();
  }

  /** Reserves in `source` what `total` takes beyond `held`, and holds it there from then on. */
  #growIn(
    source: Source,
    total: { fixed: Quantity; tokens: number },
    held: Quantity,
  ): boolean | Promise<boolean> {
    if (this.#ended) return false;
    const perUnit = source.scaled(this.options.demand.perToken);
    const wanted = grantedAmount({ fixed: source.scaled(total.fixed), perUnit }, total.tokens);
    const more = {
      money: Math.max(0, wanted.money - held.money),
      tokens: Math.max(0, wanted.tokens - held.tokens),
    };
    if (more.money === 0 && more.tokens === 0) return true;
    const keep = (granted: number): boolean => {
      if (granted === REFUSED) return false;
      if (this.#ended) {
        this.#change(source, negative(more));
        return false;
      }
      if (source !== this.#source) this.#change(this.#source, negative(this.#amount));
      this.#source = source;
      this.#amount = { money: held.money + more.money, tokens: held.tokens + more.tokens };
      return true;
    };
    const granted = this.reservations.grant({
      purses: source.purses(),
      alsoOn: source.alsoOn,
      fixed: more,
      perUnit,
      unitsMin: 0,
      unitsMax: 0,
    });
    return granted instanceof Promise ? granted.then(keep) : keep(granted);
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#change(this.#source, negative(this.#amount));
  }

  #change(source: Source, amount: Quantity): void {
    const names = [...source.purses().map(({ name }) => name), ...source.alsoOn];
    this.reservations.change(names.map((name) => ({ name, amount })));
  }
}

const NOTHING_HELD: Quantity = { money: 0, tokens: 0 };

/** The limits of a tier in nano-dollars and tokens; null when it has none. */
export function limitOf({ monthlyUsdQuota, monthlyTokenQuota }: Tier): Quantity | null {
  if (monthlyUsdQuota === null && monthlyTokenQuota === null) return null;
  return {
    money: monthlyUsdQuota === null ? NO_LIMIT : Math.ceil(monthlyUsdQuota * NANO_PER_USD),
    tokens: monthlyTokenQuota ?? NO_LIMIT,
  };
}

/** Nano-dollars of a quota that may pay a debt: what is left for the user and for the user's keys together. */
export function leftForDebt(limit: Quantity | null, used: { all: Quantity; byKeys: Quantity }): number {
  if (limit === null) return NO_LIMIT;
  const { all, byKeys } = used;
  if (Math.max(all.tokens, byKeys.tokens) >= limit.tokens) return 0;
  return Math.max(0, limit.money - Math.max(all.money, byKeys.money));
}

/** Points are what is left, not what is gone: the limit is 0 and the balance counts as negative use. */
export const spentPoints = ({ balance, version }: Pick<Balance, "balance" | "version">): Spent => ({
  money: -balance * NANO_PER_POINT,
  tokens: 0,
  version,
});

export const negative = ({ money, tokens }: Quantity): Quantity => ({ money: -money, tokens: -tokens });
