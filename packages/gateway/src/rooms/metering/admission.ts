import {
  type Asking,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  type Reservations,
} from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { Payer } from "../../kernel/payer.ts";
import { whenKnown } from "../../kernel/when-known.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { MonthNames, NANO_PER_USD, WHOLE_USER } from "../usage/index.ts";
import {
  type Cover,
  changesIn,
  type Demand,
  Held,
  nothing,
  plainCost,
  type Source,
  UNLIMITED,
} from "./cover.ts";
import type { KeyBudgets, KeyLimitKind, KeyShare } from "./key-budgets.ts";
import { leftForDebt, limitOf, negative, POINTS_LIMIT, spentPoints, TOKENS_BEYOND_QUOTA } from "./limits.ts";
import { exactNanoPoints, NANO_PER_POINT } from "./points.ts";
import { refuseByKey, refuseIndebted, refuseUncovered } from "./refusals.ts";
import { type QuotaWindow, type QuotaWindows, spentOf } from "./windows.ts";

/** How long a request waits for a check whose facts are not in memory; then it is let through. */
const CHECK_TIMEOUT_MS = 500;
/** After a failed check the next ones do not wait at all for this long. */
const UNKNOWN_FOR_MS = 1_000;
/** Requests that begin so shortly before the end of a month may end in the next: no request, and no job, takes longer. */
const LONGEST_REQUEST_MS = 70 * 60_000;
/** A check that needed more reads than this is looping. */
const ROUNDS_MAX = 16;

interface AdmissionOptions {
  clock: Clock;
  log: Log;
  balances: Balances;
  windows: QuotaWindows;
  reservations: Reservations;
  keyBudgets: KeyBudgets;
  /** Seconds until the key has used fewer tokens within a minute. */
  tokenPaceSeconds(keyId: string): number;
  pointsPerUsd: number;
  /** Lets the tier's quota pay what it can of the payer's debt. */
  payDebt(payer: Payer): Promise<void>;
}

const NO_NAMES: readonly string[] = [];

type Verdict = Cover | Missing | Promise<Cover | Missing>;

/** Facts that are not in memory: the check continues once they are loaded. */
class Missing {
  constructor(
    readonly load: () => Promise<unknown>,
    /** Of the key's own limits: these are never passed over. */
    readonly isOfKey = false,
  ) {}
}

/** What a decision goes by. */
interface Facts {
  demand: Demand;
  points: Source | null;
  quota: Source | null;
  /** Null while the account is not known. */
  balance: Balance | null;
  share: KeyShare | null;
  /** It was refused before, and then no limit of the key was full. */
  isAgain?: true;
}

/** The order in which covers are tried. */
const STEPS = { pointsWhole: 0, quotaWhole: 1, lowering: 2, pointsLowered: 3, quotaLowered: 4 } as const;
/** In this order they are named as the reason of a refusal: a total is not paid by waiting. */
const KEY_BUDGETS: readonly KeyLimitKind[] = ["total_budget", "monthly_budget"];

/** Output tokens that are asked for; no more than fit into a minute of the key at all. */
function wholeOf({ payer, fixed, tokensMax }: Demand): number {
  const most = payer.keyLimits?.tokensPerMinute ?? null;
  return most === null ? tokensMax : Math.max(0, Math.min(tokensMax, Math.floor(most - fixed.tokens)));
}

/** The windows that a request counts in: those whose quota limits it, and the rest. */
interface CountedWindows {
  limiting: readonly QuotaWindow[];
  names: readonly string[];
  purses(limit: Quantity): Purse[];
  alsoOn: readonly string[];
}

/** Decides whether a request can be paid, and from what. */
export class AdmissionCheck {
  #unknownUntilMs = 0;
  readonly #months = new MonthNames();
  readonly #monthsOfEnds = new MonthNames();

  constructor(readonly options: AdmissionOptions) {}

  /**
   * A key is limited by its project's window and by that of all the user's keys together, or labels would multiply
   * the quota; it counts in the whole user's, too. A signed-in person is limited by the whole user's alone.
   */
  windowsOf(payer: Pick<Payer, "userId" | "project">, atMs: number): CountedWindows {
    return this.#windowsIn(payer, this.#months.at(atMs));
  }

  #windowsIn({ userId, project }: Pick<Payer, "userId" | "project">, month: string): CountedWindows {
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

  /** Reserves what the request may cost, or throws the refusal. A promise only when something must be looked up. */
  check(demand: Demand): Cover | Promise<Cover> {
    const verdict = this.#decide(demand);
    return verdict instanceof Missing || verdict instanceof Promise
      ? this.#checkLater(demand, verdict)
      : verdict;
  }

  /** Reserves it without checking limits, where it would be charged if it were settled now. */
  async resume(demand: Demand): Promise<Cover> {
    const { payer, tier, fixed, hasPrice } = demand;
    const account = accountOf(payer);
    const balance = await this.options.balances.load(account);
    const points = this.#points(payer, account, balance);
    const isCovered = hasPrice && points.scaled(fixed).money <= balance.balance * NANO_PER_POINT;
    const share = await this.#knownShare(payer);
    const quota = isCovered ? null : await this.#knownQuota(payer, limitOf(tier));
    const source = isCovered ? points : (quota ?? (share && UNLIMITED));
    if (!source) return nothing(demand);
    const amount = source.scaled(fixed);
    const changes = changesIn(source, amount);
    if (share) changes.push(...share.names.map((name) => ({ name, amount: fixed })));
    this.options.reservations.change(changes);
    return new Held(this.options.reservations, { demand, source, quota: null, share, amount, tokens: 0 });
  }

  async #knownShare(payer: Payer): Promise<KeyShare | null> {
    const share = this.#share(payer);
    if (!(share instanceof Missing)) return share;
    await share.load();
    return this.#knownShare(payer);
  }

  async #knownQuota(payer: Payer, limit: Quantity | null): Promise<Source | null> {
    if (limit === null) return null;
    const quota = this.#quota(payer, limit);
    if (!(quota instanceof Missing)) return quota;
    await quota.load();
    return this.#knownQuota(payer, limit);
  }

  async #checkLater(demand: Demand, first: Verdict): Promise<Cover> {
    const { clock, log } = this.options;
    let isUnknown = false;
    let verdict = await first;
    for (let round = 0; round < ROUNDS_MAX; round++) {
      if (!(verdict instanceof Missing)) return verdict;
      if (verdict.isOfKey) await verdict.load();
      else if (clock.now() < this.#unknownUntilMs) isUnknown = true;
      else {
        try {
          await this.#withinDeadline(verdict.load());
        } catch (error) {
          // Fail open: an unchecked request is better than one refused because a database is down.
          isUnknown = true;
          this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
          log.error("quota check failed; request admitted unchecked", {
            user_id: demand.payer.userId,
            error,
          });
        }
      }
      verdict = await (isUnknown ? this.#decideByKey(demand) : this.#decide(demand));
    }
    throw new Error("the quota check did not terminate");
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
    const share = this.#share(payer);
    if (share instanceof Missing) return share;
    const points = hasPrice && balance.balance > 0 ? this.#points(payer, account, balance) : null;
    const limit = limitOf(tier);
    if (points === null && limit === null && share === null) return nothing(demand);
    const quota = limit ? this.#quota(payer, limit) : share && UNLIMITED;
    if (quota instanceof Missing) return quota;
    return this.#tryFrom(0, { demand, points, quota, balance, share });
  }

  /** Where nothing else could be looked up, the key's own limits still hold. */
  #decideByKey(demand: Demand): Verdict {
    const share = this.#share(demand.payer);
    if (share instanceof Missing) return share;
    if (share === null) return nothing(demand);
    return this.#tryFrom(0, { demand, points: null, quota: UNLIMITED, balance: null, share });
  }

  #share(payer: Payer): KeyShare | null | Missing {
    if (!payer.keyLimits) return null;
    const { keyBudgets, clock } = this.options;
    const share = keyBudgets.shareOf(payer, this.#monthsFrom(clock.now()));
    if (share !== undefined) return share;
    return new Missing(() => keyBudgets.read(payer, (work) => this.#withinDeadline(work)), true);
  }

  /** A request counts in the month in which it ends, so it is held in every month in which it may. */
  #monthsFrom(nowMs: number): string[] {
    const month = this.#months.at(nowMs);
    const later = this.#monthsOfEnds.at(nowMs + LONGEST_REQUEST_MS);
    return later === month ? [month] : [month, later];
  }

  /**
   * Points first, then the quota, each for the whole bound; only when neither has room for it, as much of it as one
   * of them has room for. The key's own limits must have room as well, each time.
   */
  #tryFrom(step: number, facts: Facts): Verdict {
    const { demand, points, quota } = facts;
    if (step === STEPS.quotaWhole && quota === null) return nothing(demand);
    if (step === STEPS.lowering) return this.#beforeLowering(facts);
    if (step > STEPS.quotaLowered) return this.#refuse(facts);
    const isWhole = step < STEPS.lowering;
    const source = step === STEPS.pointsWhole || step === STEPS.pointsLowered ? points : quota;
    const whole = wholeOf(demand);
    if (source === null || (!isWhole && demand.tokensMin >= whole)) return this.#tryFrom(step + 1, facts);
    const asking = this.#askingOf(facts, source, { min: isWhole ? whole : demand.tokensMin, max: whole });
    return whenKnown(this.options.reservations.grant(asking), (tokens) =>
      tokens === REFUSED ? this.#tryFrom(step + 1, facts) : this.#hold(facts, { source, asking, tokens }),
    );
  }

  /**
   * Before anything is lowered or refused, the prompt is counted rather than sampled. A pace is kept by waiting, not by
   * shorter answers.
   */
  #beforeLowering(facts: Facts): Verdict {
    const { demand, share } = facts;
    if (demand.recount?.()) return this.#tryFrom(STEPS.pointsWhole, facts);
    const isTooFast = share && this.#isFull(share, "tokens_per_minute", demand, wholeOf(demand));
    return whenKnown(isTooFast, (isSo) =>
      isSo ? this.#refuseByKey("tokens_per_minute", demand) : this.#tryFrom(STEPS.pointsLowered, facts),
    );
  }

  /** Names what has no room: a budget of the key, otherwise what pays. Room may have come free since: then once more. */
  #refuse(facts: Facts, budgets: readonly KeyLimitKind[] = KEY_BUDGETS): Verdict {
    const { demand, share, balance, isAgain } = facts;
    const [kind, ...rest] = budgets;
    if (share && !kind && !isAgain) return this.#tryFrom(STEPS.pointsWhole, { ...facts, isAgain: true });
    if (!share || !kind) {
      if (balance) refuseUncovered(balance, this.options.clock.now());
      return this.#refuseByKey("monthly_budget", demand);
    }
    return whenKnown(this.#isFull(share, kind, demand, demand.tokensMin), (isSo) =>
      isSo ? this.#refuseByKey(kind, demand) : this.#refuse(facts, rest),
    );
  }

  #refuseByKey(kind: KeyLimitKind, { payer, fixed, tokensMin }: Demand): never {
    const { clock, tokenPaceSeconds } = this.options;
    return refuseByKey(kind, {
      limits: payer.keyLimits!,
      tokens: fixed.tokens + tokensMin,
      nowMs: clock.now(),
      paceSeconds: tokenPaceSeconds(payer.keyId!),
    });
  }

  /** Whether this one limit of the key has no room for so many output tokens. */
  #isFull(share: KeyShare, kind: KeyLimitKind, demand: Demand, tokens: number): boolean | Promise<boolean> {
    const cost = plainCost(demand);
    const purse = share.purse(kind, cost);
    if (!purse) return false;
    const { reservations } = this.options;
    const asking = { purses: [purse], alsoOn: NO_NAMES, ...cost, unitsMin: tokens, unitsMax: tokens };
    return whenKnown(reservations.grant(asking), (granted) => {
      if (granted === REFUSED) return true;
      reservations.change([{ name: purse.name, amount: negative(grantedAmount(cost, granted)) }]);
      return false;
    });
  }

  #askingOf({ demand, share }: Facts, source: Source, { min, max }: { min: number; max: number }): Asking {
    const purses = source.purses();
    if (share) purses.push(...share.purses(plainCost(demand)));
    return {
      purses,
      alsoOn: source.alsoOn,
      fixed: source.scaled(demand.fixed),
      perUnit: source.scaled(demand.perToken),
      unitsMin: min,
      unitsMax: max,
    };
  }

  #hold(
    { demand, quota, share }: Facts,
    { source, asking, tokens }: { source: Source; asking: Asking; tokens: number },
  ): Cover {
    const amount = grantedAmount(asking, tokens);
    return new Held(this.options.reservations, { demand, source, quota, share, amount, tokens });
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
    return { kind: "points", purses, alsoOn: NO_NAMES, names: [name], scaled };
  }

  #quota(payer: Payer, limit: Quantity): Source | Missing {
    const { clock, windows } = this.options;
    const counted = this.#monthsFrom(clock.now()).map((month) => this.#windowsIn(payer, month));
    for (const { limiting } of counted) {
      for (const window of limiting)
        if (!windows.isKnown(window)) return new Missing(() => readAll(windows, limiting));
    }
    return {
      kind: "quota",
      purses: () => counted.flatMap((month) => month.purses(limit)),
      alsoOn: counted.flatMap(({ alsoOn }) => alsoOn),
      names: counted.flatMap(({ names }) => names),
      scaled: (amount) => amount,
    };
  }

  /** Nothing is admitted while a debt stands. A quota that is not drained pays it first; a new month's is not. */
  #indebted({ payer, tier }: Demand, owed: number): Verdict {
    const { clock, windows, pointsPerUsd } = this.options;
    const whole = windows.get({
      userId: payer.userId,
      month: this.#months.at(clock.now()),
      project: WHOLE_USER,
    });
    if (!windows.isKnown(whole)) return new Missing(() => windows.read(whole));
    const mayPay = clock.now() >= this.#unknownUntilMs;
    const left = leftForDebt(limitOf(tier), whole.used!);
    if (mayPay && left * pointsPerUsd >= NANO_PER_USD) return new Missing(() => this.#payDebt(payer));
    return refuseIndebted(payer, owed, clock.now());
  }

  async #payDebt(payer: Payer): Promise<void> {
    const { clock, log, balances } = this.options;
    try {
      await this.options.payDebt(payer);
      await balances.load(accountOf(payer));
    } catch (error) {
      // The debt is known, so this must not fail open.
      this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
      log.warn("paying a debt from the quota failed", { user_id: payer.userId, error });
    }
  }

  /** What the account holds; a stale balance is used while it is refreshed in the background. */
  #balance(account: AccountRef): Balance | Missing {
    const { balances, clock, log } = this.options;
    const confirmed = balances.peek(account);
    if (confirmed) return confirmed;
    const last = balances.last(account);
    if (!last) return new Missing(() => balances.load(account));
    if (clock.now() >= this.#unknownUntilMs) {
      balances.load(account).catch((error) => {
        this.#unknownUntilMs = clock.now() + UNKNOWN_FOR_MS;
        log.warn("balance refresh failed; using the cached one", {
          account: accountKey(account),
          error,
        });
      });
    }
    return last;
  }
}

const readAll = (windows: QuotaWindows, wanted: readonly QuotaWindow[]): Promise<unknown> =>
  Promise.all(wanted.filter(({ used }) => used === null).map((window) => windows.read(window)));
