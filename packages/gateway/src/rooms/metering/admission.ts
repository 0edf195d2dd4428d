import type { Quantity, Reservations, Spent } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { NANO_PER_USD, nextMonthMs, utcMonth, WHOLE_USER } from "../usage/index.ts";
import type { HoldKind } from "./journal/codec.ts";
import { NANO_PER_POINT, nanoPoints } from "./points.ts";
import { type QuotaWindow, type QuotaWindows, spentOf } from "./windows.ts";

/** How long a request waits for a check whose facts are not in memory; then it is let through. */
const CHECK_TIMEOUT_MS = 500;
/** After a failed check the next ones do not wait at all for this long. */
const UNKNOWN_FOR_MS = 1_000;
const BALANCES_MAX = 50_000;

export interface AdmissionOptions {
  clock: Clock;
  log: Log;
  balances: Balances;
  windows: QuotaWindows;
  reservations: Reservations;
  pointsPerUsd: number;
}

export interface Demand {
  payer: Payer;
  tier: Tier;
  /** Null when the model has no price: then only tokens count. */
  costNanoUsd: number | null;
  tokens: number;
}

type Amount = Pick<Demand, "costNanoUsd" | "tokens">;

/** Where a hold is taken, and how a cost counts there. */
interface Purse {
  kind: HoldKind;
  names: readonly string[];
  /** The whole amount must fit; otherwise one unit of room is enough. */
  isStrict: boolean;
  limit: Quantity;
  amountOf(amount: Amount): Quantity;
  spent(): Spent;
}

/** What pays for a request: points, the tier's quota, or nothing that needs reserving. */
export interface Cover {
  kind: HoldKind;
  /** Reserves enough for this much in all; false when there is no more. */
  grow(total: Amount): boolean | Promise<boolean>;
  /** Gives the reservation back. */
  end: () => void;
}

const NOTHING: Cover = { kind: "none", grow: () => true, end: () => {} };
const NO_LIMIT = Number.POSITIVE_INFINITY;
const NO_POINTS: Quantity = { money: 0, tokens: NO_LIMIT };
/** A quota lets through the request that crosses its line, so one unit of room is enough. */
const ANY_ROOM: Quantity = { money: 1, tokens: 1 };

/** What a request that has no room where it was looked for gets next: another payer, or the refusal. */
type Otherwise = () => Verdict;
type Verdict = Cover | Missing | Promise<Cover | Missing>;

/** Facts that are not in memory: the check goes on once they were read. */
class Missing {
  constructor(readonly load: () => Promise<unknown>) {}
}

/** Decides whether, and by what, a request is paid. */
export class AdmissionCheck {
  /** The last balances seen: used while the ledger confirms a newer one in the background. */
  readonly #balances = new BoundedMap<string, Balance>(BALANCES_MAX);
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

  /** Windows that a request of this payer counts in; the first one is the one whose quota limits it. */
  windowsOf(payer: Pick<Payer, "userId" | "project">, atMs: number): QuotaWindow[] {
    const month = this.#monthAt(atMs);
    const { windows } = this.options;
    const whole = windows.get({ userId: payer.userId, month, project: WHOLE_USER });
    return payer.project === null
      ? [whole]
      : [windows.get({ userId: payer.userId, month, project: payer.project }), whole];
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
    for (let verdict = await first; ; verdict = await this.#decide(demand)) {
      if (!(verdict instanceof Missing)) return verdict;
      try {
        if (clock.now() < this.#unknownUntilMs) return NOTHING;
        await this.#withinDeadline(verdict.load());
      } catch (error) {
        // Better a request that is not checked than one that is refused because a database is away.
        this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
        log.error("quota check failed; the request is let through", { user_id: demand.payer.userId, error });
        return NOTHING;
      }
    }
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
    const { payer, costNanoUsd } = demand;
    if (costNanoUsd === null || costNanoUsd <= 0) return this.#fromQuota(demand);
    const account = accountOf(payer);
    const balance = this.#balance(account);
    if (balance instanceof Missing) return balance;
    if (balance.balance <= 0) return this.#fromQuota(demand);
    return this.#fromPoints(demand, accountKey(account), balance);
  }

  #fromPoints(demand: Demand, name: string, balance: Balance): Verdict {
    const { costMultiplierMicros } = demand.payer;
    const { pointsPerUsd } = this.options;
    const amountOf = ({ costNanoUsd }: Amount): Quantity => ({
      money: nanoPoints(costNanoUsd ?? 0, costMultiplierMicros, pointsPerUsd),
      tokens: 0,
    });
    const account = accountOf(demand.payer);
    const spent = () =>
      spentPoints(this.#balances.get(name) ?? this.options.balances.peek(account) ?? balance);
    return this.#take(
      { kind: "points", names: [name], isStrict: true, limit: NO_POINTS, amountOf, spent },
      demand,
      () => this.#fromQuota(demand),
    );
  }

  #fromQuota(demand: Demand): Verdict {
    const { payer, tier } = demand;
    if (tier.monthlyUsdQuota === null && tier.monthlyTokenQuota === null) return NOTHING;
    const { clock, windows } = this.options;
    const counted = this.windowsOf(payer, clock.now());
    // A key spends within its project's window; a signed-in person within the whole user's.
    const limited = counted[0]!;
    if (!windows.isKnown(limited)) return new Missing(() => windows.read(limited));
    const amountOf = ({ costNanoUsd, tokens }: Amount): Quantity => ({ money: costNanoUsd ?? 0, tokens });
    const limit = {
      money: tier.monthlyUsdQuota === null ? NO_LIMIT : Math.ceil(tier.monthlyUsdQuota * NANO_PER_USD),
      tokens: tier.monthlyTokenQuota ?? NO_LIMIT,
    };
    const names = counted.map(({ name }) => name);
    const spent = () => spentOf(limited.base!);
    return this.#take({ kind: "quota", names, isStrict: false, limit, amountOf, spent }, demand, () => {
      const balance = this.#balance(accountOf(payer));
      return balance instanceof Missing ? balance : this.#refuse(balance);
    });
  }

  #take(purse: Purse, demand: Demand, otherwise: Otherwise): Verdict {
    const { reservations } = this.options;
    const { kind, names, isStrict, limit, amountOf, spent } = purse;
    let held: Quantity = { money: 0, tokens: 0 };
    const hold = (total: Quantity): boolean | Promise<boolean> => {
      const amount = {
        money: Math.max(0, total.money - held.money),
        tokens: Math.max(0, total.tokens - held.tokens),
      };
      const room = isStrict ? amount : ANY_ROOM;
      const taken = reservations.take({ names, amount, room, limit, spent: spent() });
      const keep = (granted: boolean): boolean => {
        if (granted) held = { money: held.money + amount.money, tokens: held.tokens + amount.tokens };
        return granted;
      };
      return taken instanceof Promise ? taken.then(keep) : keep(taken);
    };
    const cover = (): Cover => ({
      kind,
      grow: (total) => hold(amountOf(total)),
      end: () => reservations.change(names.map((name) => ({ name, amount: negative(held) }))),
    });
    const taken = hold(amountOf(demand));
    if (taken instanceof Promise) return taken.then((granted) => (granted ? cover() : otherwise()));
    return taken ? cover() : otherwise();
  }

  #balance(account: AccountRef): Balance | Missing {
    const { balances, log } = this.options;
    const key = accountKey(account);
    const confirmed = balances.peek(account);
    if (confirmed) {
      if (this.#balances.get(key) !== confirmed) this.#balances.set(key, confirmed);
      return confirmed;
    }
    const last = this.#balances.get(key);
    if (!last) {
      return new Missing(async () => this.#balances.set(key, await balances.load(account)));
    }
    if (this.options.clock.now() >= this.#unknownUntilMs) {
      balances.load(account).catch((error) => {
        this.#unknownUntilMs = this.options.clock.now() + UNKNOWN_FOR_MS;
        log.warn("balance not read again; the known one stays in force", { account: key, error });
      });
    }
    return last;
  }

  #refuse({ everCredited }: Balance): never {
    const nowMs = this.options.clock.now();
    const retryAfterSeconds = Math.max(1, Math.ceil((nextMonthMs(nowMs) - nowMs) / 1000));
    const when = "a new month begins (UTC)";
    if (everCredited) {
      fail(
        "payment_required",
        `The points do not cover this request and this month's quota is used up; top up, ask for fewer tokens (max_tokens), or wait until ${when}`,
        { retryAfterSeconds },
      );
    }
    fail("quota_exceeded", `This month's quota is used up; ask for a higher tier or wait until ${when}`, {
      retryAfterSeconds,
    });
  }
}

/** Points are what is left, not what is gone: the limit is 0 and the balance counts as negative use. */
export const spentPoints = ({ balance, version }: Balance): Spent => ({
  money: -balance * NANO_PER_POINT,
  tokens: 0,
  version,
});

export const negative = ({ money, tokens }: Quantity): Quantity => ({ money: -money, tokens: -tokens });
