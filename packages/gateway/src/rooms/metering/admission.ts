import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { NANO_PER_USD, nextMonthMs, utcMonth, WHOLE_USER } from "../usage/index.ts";
import type { HoldKind } from "./journal/codec.ts";
import { NANO_PER_POINT, nanoPoints, type ReservedPoints } from "./points.ts";
import type { Amount, QuotaWindow, QuotaWindows } from "./windows.ts";

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
  reservedPoints: ReservedPoints;
  pointsPerUsd: number;
}

export interface Demand {
  payer: Payer;
  tier: Tier;
  /** Null when the model has no price: then only tokens count. */
  costNanoUsd: number | null;
  tokens: number;
}

/** What pays for a request: points, the tier's quota, or nothing that needs reserving. */
export interface Cover {
  kind: HoldKind;
  /** Gives the reservation back. */
  end: () => void;
}

const NOTHING: Cover = { kind: "none", end: () => {} };

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

  /** Windows that a request of this payer counts in: the user's, and the project's when there is one. */
  windowsOf(payer: Pick<Payer, "userId" | "project">, atMs: number): QuotaWindow[] {
    const month = this.#monthAt(atMs);
    const { windows } = this.options;
    const whole = windows.get({ userId: payer.userId, month, project: WHOLE_USER });
    return payer.project === null
      ? [whole]
      : [whole, windows.get({ userId: payer.userId, month, project: payer.project })];
  }

  /** Reserves what the request may cost, or throws the refusal; a promise only when facts must be read. */
  check(demand: Demand): Cover | Promise<Cover> {
    const result = this.#decide(demand);
    return result instanceof Missing ? this.#checkLater(demand, result) : result;
  }

  async #checkLater(demand: Demand, missing: Missing): Promise<Cover> {
    const { clock, log } = this.options;
    for (let result: Cover | Missing = missing; ; result = this.#decide(demand)) {
      if (!(result instanceof Missing)) return result;
      try {
        if (clock.now() < this.#unknownUntilMs) return NOTHING;
        await this.#withinDeadline(result.load());
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

  #decide(demand: Demand): Cover | Missing {
    const { payer, tier, costNanoUsd, tokens } = demand;
    const account = accountOf(payer);
    if (costNanoUsd !== null && costNanoUsd > 0) {
      const balance = this.#balance(account);
      if (balance instanceof Missing) return balance;
      const cover = balance.balance > 0 ? this.#fromPoints(payer, account, balance, costNanoUsd) : null;
      if (cover) return cover;
    }
    if (tier.monthlyUsdQuota === null && tier.monthlyTokenQuota === null) return NOTHING;
    const { clock, windows } = this.options;
    const counted = this.windowsOf(payer, clock.now());
    // A key spends within its project's window; a signed-in person within the whole user's.
    const limited = counted.at(-1)!;
    if (!windows.isKnown(limited)) return new Missing(() => windows.read(limited));
    if (isDrained(limited, tier)) {
      const balance = this.#balance(account);
      return balance instanceof Missing ? balance : this.#refuse(balance);
    }
    return this.reserve(counted, { costNanoUsd: costNanoUsd ?? 0, tokens });
  }

  /** Reserves an amount of quota in each of the windows. */
  reserve(counted: readonly QuotaWindow[], amount: Amount): Cover {
    const { windows } = this.options;
    for (const window of counted) windows.reserve(window, amount);
    return {
      kind: "quota",
      end: () => {
        for (const window of counted) windows.release(window, amount);
      },
    };
  }

  #fromPoints(payer: Payer, account: AccountRef, { balance }: Balance, costNanoUsd: number): Cover | null {
    const { reservedPoints, pointsPerUsd } = this.options;
    const key = accountKey(account);
    const amount = nanoPoints(costNanoUsd, payer.costMultiplierMicros, pointsPerUsd);
    if (balance * NANO_PER_POINT - reservedPoints.of(key) < amount) return null;
    reservedPoints.add(key, amount);
    return { kind: "points", end: () => reservedPoints.add(key, -amount) };
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

/**
 * The quota is drained when what was used and what is reserved fill it. The request that crosses the line is
 * let through: refusing it would leave the last part of a quota unusable for anyone with larger requests.
 */
function isDrained({ base, reserved }: QuotaWindow, tier: Tier): boolean {
  const used = base ?? { costNanoUsd: 0, tokens: 0 };
  if (
    tier.monthlyUsdQuota !== null &&
    used.costNanoUsd + reserved.costNanoUsd >= tier.monthlyUsdQuota * NANO_PER_USD
  ) {
    return true;
  }
  return tier.monthlyTokenQuota !== null && used.tokens + reserved.tokens >= tier.monthlyTokenQuota;
}
