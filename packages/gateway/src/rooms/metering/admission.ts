import {
  type Asking,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  unitsThatFit,
} from "../../bus/contract.ts";
import { within } from "../../kernel/clock.ts";
import { ServiceError } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Needs } from "../foundation.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { NANO_PER_USD, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { Cover, changesIn, type Demand, plainCost, type Source, UNLIMITED } from "./cover.ts";
import type { KeyBudgets, KeyLimitKind, KeyShare } from "./key-budgets.ts";
import {
  exactNanoPoints,
  leftForDebt,
  limitOf,
  NANO_PER_POINT,
  NOTHING,
  negative,
  POINTS_LIMIT,
  spentPoints,
  TOKENS_BEYOND_QUOTA,
} from "./limits.ts";
import { refusalUnchecked, refuseByKey, refuseHeld, refuseIndebted, refuseUncovered } from "./refusals.ts";
import { type QuotaWindow, type QuotaWindows, spentOf, type Used } from "./windows.ts";

/** How long a request waits for a slow database. The storage notices an unreachable one sooner. */
const CHECK_WITHIN_MS = 10_000;
/** No request or job takes longer, so this long before a month ends, new ones may end in the next month. */
const LONGEST_REQUEST_MS = 70 * 60_000;

interface AdmissionOptions extends Needs<"clock" | "log" | "counter"> {
  balances: Balances;
  windows: QuotaWindows;
  keyBudgets: KeyBudgets;
  /** Resolves when requests that have ended are settled and their holds released, or after a timeout. */
  settled(): Promise<unknown>;
  /** Seconds until the key's tokens of the last minute become fewer. */
  tokenPaceSeconds(keyId: string): number;
  pointsPerUsd: number;
  /** Lets the tier's quota pay what it can of the payer's debts. */
  payDebts(payer: Payer): Promise<void>;
}

const NO_NAMES: readonly string[] = [];

/** A query failed, so the request is admitted unchecked. */
class Unknown extends Error {}

interface Payment {
  points: Source | null;
  quota: Source;
  balance: Balance | null;
  /** Points owed on the user's own wallet while another account pays; until they are paid, the quota is closed. */
  owedElsewhere: number;
}
const UNKNOWN_PAYMENT: Payment = { points: null, quota: UNLIMITED, balance: null, owedElsewhere: 0 };

/** A payment, and the limits of the request's key. */
interface Facts extends Payment {
  demand: Demand;
  share: KeyShare | null;
}

/** Refusals name the first that is full. The total comes first, because waiting does not help there. */
const KEY_BUDGETS: readonly KeyLimitKind[] = ["total_budget", "monthly_budget", "member_budget"];

/** The requested output tokens, at most what the key's tokens per minute can ever allow beside the prompt. */
function wholeOf(demand: Demand): number {
  const { payer, tokensMax, tokensLowered } = demand;
  const most = payer.keyLimits?.tokensPerMinute ?? null;
  const allowed = most === null ? tokensMax : Math.floor(most - demand.fixed.tokens);
  return allowed < tokensMax ? Math.max(demand.tokensFloor, Math.min(tokensLowered, allowed)) : tokensMax;
}

/** The least that is worth holding. */
const leastOf = (demand: Demand): number => Math.min(demand.tokensMin, wholeOf(demand));

type Who = Pick<Demand, "payer" | "tier">;

/** Decides whether a request can be paid, and from what. */
export class AdmissionCheck {
  constructor(readonly options: AdmissionOptions) {}

  /** Reserves what the request may cost, or throws the refusal. */
  async check(demand: Demand): Promise<Cover> {
    const payment = await this.#paymentOf(demand);
    const share = demand.payer.keyLimits && (await this.#share(demand.payer));
    const facts: Facts = { ...payment, demand, share };
    // If no limit of the key turns out to be full, room has become free meanwhile: try once more.
    for (let tries = share ? 2 : 1; tries > 0; tries--) {
      const cover = await this.#cover(facts);
      if (cover) return cover;
      await this.#refuseByBudget(facts);
    }
    if (facts.balance) return this.#coverSettled(facts, facts.balance);
    return this.#refuseByKey("monthly_budget", demand);
  }

  /** Tries points, then the quota, first for the whole bound, then for what fits; always within the key's limits. */
  async #cover(facts: Facts): Promise<Cover | null> {
    const { demand, points, quota, share } = facts;
    const whole = wholeOf(demand);
    const cover =
      (await this.#coverFrom(points, facts, whole)) ?? (await this.#coverFrom(quota, facts, whole));
    if (cover) return cover;
    // A pace is met by waiting, not by shorter answers.
    if (share && (await this.#isFull(share, "tokens_per_minute", demand, whole)))
      this.#refuseByKey("tokens_per_minute", demand);
    const least = demand.tokensMin;
    if (least >= whole) return null;
    return (await this.#coverFrom(points, facts, least)) ?? this.#coverFrom(quota, facts, least);
  }

  /** Holds as many output tokens as fit; null if these are fewer than `least`. */
  #coverFrom(
    source: Source | null,
    { demand, quota, share }: Facts,
    least: number,
  ): Cover | null | Promise<Cover | null> {
    if (source === null) return null;
    const { counter } = this.options;
    const paid = { demand, source, quota, share };
    // Do not read the demand's amounts here, because that would count the prompt.
    if (source === UNLIMITED && share === null)
      return new Cover(counter, { ...paid, amount: NOTHING, tokens: demand.tokensMax });
    const asking = askingOf(source, demand, least);
    asking.purses.push(...(share?.purses(plainCost(demand)) ?? []));
    return counter.grant(asking).then((tokens) => {
      if (tokens === REFUSED) return null;
      return new Cover(counter, { ...paid, amount: grantedAmount(asking, tokens), tokens });
    });
  }

  /** If only the holds of other requests are in the way, waits until those that have ended are settled and tries again. */
  async #coverSettled(facts: Facts, balance: Balance): Promise<Cover> {
    const { clock, settled } = this.options;
    const { demand, points, quota, owedElsewhere } = facts;
    const held = () =>
      [points, quota].find((source) => source && fits(askingOf(source, demand, leastOf(demand))));
    if (held()) {
      await settled();
      const cover = await this.#cover(facts);
      if (cover) return cover;
    }
    const by = held();
    if (!by && owedElsewhere > 0) refuseIndebted(ownOf(demand.payer), owedElsewhere, clock.now());
    if (!by) return refuseUncovered(balance, clock.now());
    const what = by.kind === "quota" ? "quota" : demand.payer.groupId ? "pool" : "points";
    return refuseHeld(what, balance, clock.now());
  }

  /** Reserves without checking limits, on the account or quota that would be charged now. */
  async resume(demand: Demand): Promise<Cover> {
    const { payer, tier, fixed, hasPrice } = demand;
    const account = accountOf(payer);
    const balance = await this.options.balances.load(account);
    const points = this.#points(payer, account, balance);
    const isCovered = hasPrice && points.scaled(fixed).money <= balance.balance * NANO_PER_POINT;
    const share = payer.keyLimits && (await this.#share(payer));
    const limit = limitOf(tier);
    const quota = () => (limit ? this.#quota(payer, limit, (read) => read()) : UNLIMITED);
    const source = isCovered ? points : await quota();
    const amount = source.scaled(fixed);
    const changes = changesIn(source, amount);
    if (share) changes.push(...share.names.map((name) => ({ name, amount: fixed })));
    if (changes.length > 0) this.options.counter.change(changes);
    return new Cover(this.options.counter, { demand, source, quota: source, share, amount, tokens: 0 });
  }

  /** By contract, a failed query admits the request. A slow query has not failed. */
  async #load<T>(demand: Who, load: () => Promise<T>): Promise<T> {
    try {
      return await this.#withinDeadline(load());
    } catch (error) {
      if (error instanceof ServiceError) throw error;
      const { log } = this.options;
      log.error("quota check failed; request admitted unchecked", { user_id: demand.payer.userId, error });
      throw new Unknown();
    }
  }

  async #withinDeadline<T>(work: Promise<T>): Promise<T> {
    const done = await within(
      this.options.clock,
      CHECK_WITHIN_MS,
      work.then((value) => ({ value })),
    );
    if (!done) throw refusalUnchecked();
    return done.value;
  }

  async #paymentOf(demand: Demand): Promise<Payment> {
    const { payer, tier } = demand;
    const account = accountOf(payer);
    try {
      let balance = await this.#balance(demand, account);
      if (owedBy(payer, balance) > 0) balance = await this.#withoutDebt(demand, account, balance);
      const owed = owedBy(payer, balance);
      if (owed > 0) refuseIndebted(payer, owed, this.options.clock.now());
      const points = balance.balance > 0 && demand.hasPrice ? this.#points(payer, account, balance) : null;
      const limit = limitOf(tier);
      const owedElsewhere = limit && payer.groupId !== null ? await this.#owedElsewhere(demand) : 0;
      const left = owedElsewhere > 0 ? NOTHING : limit;
      const quota = left ? await this.#quota(payer, left, (read) => this.#load(demand, read)) : UNLIMITED;
      return { points, quota, balance, owedElsewhere };
    } catch (error) {
      if (error instanceof Unknown) return UNKNOWN_PAYMENT;
      throw error;
    }
  }

  /** What the user's own wallet owes while a group pays: the quota, which is the user's, pays that first. */
  async #owedElsewhere({ payer, tier }: Who): Promise<number> {
    const own = { payer: ownOf(payer), tier };
    const account = accountOf(own.payer);
    const balance = await this.#balance(own, account);
    return owedBy(own.payer, await this.#withoutDebt(own, account, balance));
  }

  /** The balance, after what is left of the quota, such as that of a new month, has paid what it can of a debt. */
  async #withoutDebt(demand: Who, account: AccountRef, balance: Balance): Promise<Balance> {
    const { payer, tier } = demand;
    if (owedBy(payer, balance) <= 0) return balance;
    const { clock, windows, pointsPerUsd, balances, payDebts, log } = this.options;
    const { userId } = payer;
    const whole = windows.get({ userId, month: utcMonth(clock.now()), project: WHOLE_USER });
    if (!windows.isKnown(whole)) await this.#load(demand, () => windows.read(whole));
    if (leftForDebt(limitOf(tier), whole.used!) * pointsPerUsd < NANO_PER_USD) return balance;
    try {
      await this.#withinDeadline(payDebts(payer));
      return await this.#withinDeadline(balances.load(account));
    } catch (error) {
      // The debt is known, so do not fail open.
      log.warn("paying a debt from the quota failed", { user_id: userId, error });
      return balance;
    }
  }

  /** Unlike the payment, the key's limits must be known: a failed query refuses. */
  async #share(payer: Payer): Promise<KeyShare | null> {
    const { keyBudgets, clock } = this.options;
    for (;;) {
      const share = keyBudgets.shareOf(payer, this.#monthsFrom(clock.now()));
      if (share !== undefined) return share;
      await keyBudgets.read(payer, (work) => this.#withinDeadline(work));
    }
  }

  /** A request counts in the month in which it ends, so it is held in each month in which it may end. */
  #monthsFrom(nowMs: number): string[] {
    const month = utcMonth(nowMs);
    const later = utcMonth(nowMs + LONGEST_REQUEST_MS);
    return later === month ? [month] : [month, later];
  }

  async #refuseByBudget({ demand, share }: Facts): Promise<void> {
    for (const kind of share ? KEY_BUDGETS : []) {
      const isFull = () => this.#isFull(share!, kind, demand, leastOf(demand));
      const isHeld = () => fits(askingOfKey(share!, kind, demand, leastOf(demand))!);
      if (!(await isFull())) continue;
      if (isHeld()) await this.options.settled();
      if (await isFull()) this.#refuseByKey(kind, demand, isHeld());
    }
  }

  #refuseByKey(kind: KeyLimitKind, { payer, fixed, tokensFloor }: Demand, isHeld = false): never {
    const { clock, tokenPaceSeconds } = this.options;
    return refuseByKey(kind, {
      limits: payer.keyLimits!,
      isHeld,
      tokens: fixed.tokens + tokensFloor,
      nowMs: clock.now(),
      paceSeconds: tokenPaceSeconds(payer.keyId!),
    });
  }

  /** Whether this limit of the key has no room for that many output tokens. */
  async #isFull(share: KeyShare, kind: KeyLimitKind, demand: Demand, tokens: number): Promise<boolean> {
    const { counter } = this.options;
    const asking = askingOfKey(share, kind, demand, tokens);
    if (!asking) return false;
    const granted = await counter.grant(asking);
    if (granted === REFUSED) return true;
    const amount = negative(grantedAmount(asking, granted));
    counter.change(asking.purses.map(({ name }) => ({ name, amount })));
    return false;
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

  /** A key is limited by its project's window and by that of all keys, a person only by the whole user's. */
  #quota(
    payer: Payer,
    limit: Quantity,
    load: (read: () => Promise<unknown>) => Promise<unknown>,
  ): Source | Promise<Source> {
    const { clock, windows, payDebts } = this.options;
    const { userId, project } = payer;
    const limiting: { window: QuotaWindow; name: string; by: keyof Used }[] = [];
    const alsoOn: string[] = [];
    for (const month of this.#monthsFrom(clock.now())) {
      const whole = windows.get({ userId, month, project: WHOLE_USER });
      if (project === null) limiting.push({ window: whole, name: whole.name, by: "all" });
      else {
        const own = windows.get({ userId, month, project });
        limiting.push({ window: own, name: own.name, by: "all" });
        limiting.push({ window: whole, name: whole.keysName, by: "byKeys" });
        alsoOn.push(whole.name);
      }
    }
    const source: Source = {
      kind: "quota",
      purses: () =>
        limiting.map(({ window, name, by }) => ({
          name,
          limit,
          spent: spentOf(window.used![by]),
          unitsBeyond: TOKENS_BEYOND_QUOTA,
        })),
      alsoOn,
      names: [...limiting.map(({ name }) => name), ...alsoOn],
      scaled: (amount) => amount,
    };
    const unread = limiting.map(({ window }) => window).filter((window) => !windows.isKnown(window));
    // A window that is new to this instance, such as that of a new month, first pays the user's debts.
    const read = (window: QuotaWindow) =>
      windows.read(window, window.key.project === WHOLE_USER ? () => payDebts(payer) : undefined);
    return unread.length === 0 ? source : load(() => Promise.all(unread.map(read))).then(() => source);
  }

  /** The account's balance; a stale one is used while it is refreshed in the background. */
  #balance(demand: Who, account: AccountRef): Balance | Promise<Balance> {
    const { balances } = this.options;
    const confirmed = balances.peek(account);
    if (confirmed) return confirmed;
    const last = balances.last(account);
    if (!last) return this.#load(demand, () => balances.load(account));
    // While the database is unreachable the last balance stays in force; the journal's writer logs the outage.
    balances.load(account).catch(() => {});
    return last;
  }
}

const askingOf = (source: Source, demand: Demand, least: number): Asking & { purses: Purse[] } => ({
  purses: source.purses(),
  alsoOn: source.alsoOn,
  fixed: source.scaled(demand.fixed),
  perUnit: source.scaled(demand.perToken),
  unitsMin: least,
  unitsMax: least === wholeOf(demand) ? least : Math.min(wholeOf(demand), demand.tokensLowered),
});

function askingOfKey(share: KeyShare, kind: KeyLimitKind, demand: Demand, tokens: number): Asking | null {
  const cost = plainCost(demand);
  const purse = share.purse(kind, cost);
  return purse && { purses: [purse], alsoOn: NO_NAMES, ...cost, unitsMin: tokens, unitsMax: tokens };
}

/** Whether it would fit if other requests held nothing. */
const fits = (asking: Asking): boolean =>
  unitsThatFit(asking, ({ limit, spent }) => ({
    money: limit.money - spent.money,
    tokens: limit.tokens - spent.tokens,
  })) !== REFUSED;

const ownOf = (payer: Payer): Payer => ({ ...payer, groupId: null });
const owedBy = ({ userId }: Payer, { debts }: Balance): number => debts?.[userId] ?? 0;
