import {
  type Asking,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  unitsThatFit,
} from "../../bus/contract.ts";
import { ServiceError } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Needs } from "../foundation.ts";
import { type AccountRef, accountKey, accountOf, type Balance, type Balances } from "../ledger/index.ts";
import { NANO_PER_USD, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { Cover, changesIn, type Demand, plainCost, type Source, UNLIMITED } from "./cover.ts";
import type { KeyBudgets, KeyLimitKind, KeyShare } from "./key-budgets.ts";
import {
  leftForDebt,
  limitOf,
  NOTHING,
  negative,
  POINTS_LIMIT,
  spentPoints,
  TOKENS_BEYOND_QUOTA,
} from "./limits.ts";
import { exactNanoPoints, NANO_PER_POINT } from "./points.ts";
import { refusalUnchecked, refuseByKey, refuseHeld, refuseIndebted, refuseUncovered } from "./refusals.ts";
import { type QuotaWindow, type QuotaWindows, spentOf, type Used } from "./windows.ts";

/** How long a request waits for a database that is slow. Of one that is away the storage knows sooner. */
const CHECK_WITHIN_MS = 10_000;
/** Requests that begin so shortly before the end of a month may end in the next: no request, and no job, takes longer. */
const LONGEST_REQUEST_MS = 70 * 60_000;

interface AdmissionOptions extends Needs<"clock" | "log" | "counter"> {
  balances: Balances;
  windows: QuotaWindows;
  keyBudgets: KeyBudgets;
  /** Resolves when what has ended so far is no longer held but spent, or after a while. */
  settled(): Promise<unknown>;
  /** Seconds until the key has used fewer tokens within a minute. */
  tokenPaceSeconds(keyId: string): number;
  pointsPerUsd: number;
  /** Lets the tier's quota pay what it can of the payer's debt. */
  payDebts(payer: Payer): Promise<void>;
}

const NO_NAMES: readonly string[] = [];

type Read = () => Promise<unknown>;

class Unknown extends Error {}

interface Payment {
  points: Source | null;
  quota: Source;
  balance: Balance | null;
  /** Points that the user owes on the own wallet, where another account pays: the quota is closed until then. */
  owedElsewhere: number;
}
const UNKNOWN_PAYMENT: Payment = { points: null, quota: UNLIMITED, balance: null, owedElsewhere: 0 };

/** A payment, and the limits of the request's key itself. */
interface Facts extends Payment {
  demand: Demand;
  share: KeyShare | null;
}

/** In this order they are named as the reason of a refusal: a total is not paid by waiting. */
const KEY_BUDGETS: readonly KeyLimitKind[] = ["total_budget", "monthly_budget", "member_budget"];

/** Output tokens that are asked for; no more than fit into a minute of the key at all. Only there is the prompt counted for it. */
function wholeOf(demand: Demand): number {
  const { payer, tokensMax } = demand;
  const most = payer.keyLimits?.tokensPerMinute ?? null;
  return most === null ? tokensMax : Math.max(0, Math.min(tokensMax, Math.floor(most - demand.fixed.tokens)));
}

/** The windows that a request counts in: those whose quota limits it, and the names of the rest. */
interface CountedWindows {
  limiting: readonly { window: QuotaWindow; name: string; by: keyof Used }[];
  alsoOn: readonly string[];
}

type Who = Pick<Demand, "payer" | "tier">;

/** Decides whether a request can be paid, and from what. */
export class AdmissionCheck {
  constructor(readonly options: AdmissionOptions) {}

  /** A key is limited by its project's window and by that of all keys; a person by the whole user's alone. */
  #windowsIn({ userId, project }: Pick<Payer, "userId" | "project">, month: string): CountedWindows {
    const { windows } = this.options;
    const whole = windows.get({ userId, month, project: WHOLE_USER });
    if (project === null)
      return { limiting: [{ window: whole, name: whole.name, by: "all" }], alsoOn: NO_NAMES };
    const own = windows.get({ userId, month, project });
    return {
      limiting: [
        { window: own, name: own.name, by: "all" },
        { window: whole, name: whole.keysName, by: "byKeys" },
      ],
      alsoOn: [whole.name],
    };
  }

  /** Reserves what the request may cost, or throws the refusal. */
  async check(demand: Demand): Promise<Cover> {
    const payment = await this.#paymentOf(demand).catch(failOpen);
    const share = await this.#share(demand.payer);
    const facts: Facts = { ...payment, demand, share };
    // Where no limit of the key turns out to be full, room may have come free since: then once more.
    for (let tries = share ? 2 : 1; tries > 0; tries--) {
      const cover = await this.#cover(facts);
      if (cover) return cover;
      await this.#refuseByBudget(facts);
    }
    if (facts.balance) return this.#coverSettled(facts, facts.balance);
    return this.#refuseByKey("monthly_budget", demand);
  }

  /** Points first, then the quota, each for the whole bound, then for what fits. The key's limits hold each time. */
  async #cover(facts: Facts): Promise<Cover | null> {
    const { demand, points, quota, share } = facts;
    const whole = wholeOf(demand);
    const cover =
      (await this.#coverFrom(points, facts, whole)) ?? (await this.#coverFrom(quota, facts, whole));
    if (cover) return cover;
    // A pace is kept by waiting, not by shorter answers.
    if (share && (await this.#isFull(share, "tokens_per_minute", demand, whole)))
      this.#refuseByKey("tokens_per_minute", demand);
    const least = demand.tokensMin;
    if (least >= whole) return null;
    return (await this.#coverFrom(points, facts, least)) ?? this.#coverFrom(quota, facts, least);
  }

  /** Holds as many output tokens as fit; null when these are fewer than the least. */
  async #coverFrom(
    source: Source | null,
    { demand, quota, share }: Facts,
    least: number,
  ): Promise<Cover | null> {
    if (source === null) return null;
    const { counter } = this.options;
    const paid = { demand, source, quota, share };
    // The demand is not looked into: its prompt may not have been counted.
    if (source === UNLIMITED && share === null)
      return new Cover(counter, { ...paid, amount: NOTHING, tokens: demand.tokensMax });
    const asking = askingOf(source, demand, least);
    asking.purses.push(...(share?.purses(plainCost(demand)) ?? []));
    const tokens = await counter.grant(asking);
    if (tokens === REFUSED) return null;
    return new Cover(counter, { ...paid, amount: grantedAmount(asking, tokens), tokens });
  }

  /** Nothing covers it now. Where that is because of others, it is first seen which of them have ended. */
  async #coverSettled(facts: Facts, balance: Balance): Promise<Cover> {
    const { clock, settled } = this.options;
    const { demand, points, quota, owedElsewhere } = facts;
    const held = () =>
      [points, quota].find((source) => source && fits(askingOf(source, demand, demand.tokensMin)));
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

  /** Reserves it without checking limits, where it would be charged if it were settled now. */
  async resume(demand: Demand): Promise<Cover> {
    const { payer, tier, fixed, hasPrice } = demand;
    const account = accountOf(payer);
    const balance = await this.options.balances.load(account);
    const points = this.#points(payer, account, balance);
    const isCovered = hasPrice && points.scaled(fixed).money <= balance.balance * NANO_PER_POINT;
    const share = await this.#share(payer);
    const source = isCovered ? points : await this.#quota(payer, limitOf(tier), (read) => read());
    const amount = source.scaled(fixed);
    const changes = changesIn(source, amount);
    if (share) changes.push(...share.names.map((name) => ({ name, amount: fixed })));
    if (changes.length > 0) this.options.counter.change(changes);
    return new Cover(this.options.counter, { demand, source, quota: source, share, amount, tokens: 0 });
  }

  /** A check whose query fails lets the request through, by contract. One that is slow has not failed. */
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
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = this.options.clock.after(CHECK_WITHIN_MS, () => reject(refusalUnchecked()));
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      cancel();
    }
  }

  async #paymentOf(demand: Demand): Promise<Payment> {
    const { payer, tier } = demand;
    const account = accountOf(payer);
    const balance = await this.#withoutDebt(demand, account);
    const owed = owedBy(payer, balance);
    if (owed > 0) refuseIndebted(payer, owed, this.options.clock.now());
    const points = balance.balance > 0 && demand.hasPrice ? this.#points(payer, account, balance) : null;
    const limit = limitOf(tier);
    const owedElsewhere = limit ? await this.#owedElsewhere(demand) : 0;
    const left = owedElsewhere > 0 ? NOTHING : limit;
    const quota = await this.#quota(payer, left, (read) => this.#load(demand, read));
    return { points, quota, balance, owedElsewhere };
  }

  /** The quota is the user's: with a group's key, too, it pays what the user's own wallet owes first. */
  async #owedElsewhere({ payer, tier }: Who): Promise<number> {
    if (payer.groupId === null) return 0;
    const own = ownOf(payer);
    return owedBy(own, await this.#withoutDebt({ payer: own, tier }, accountOf(own)));
  }

  async #withoutDebt(demand: Who, account: AccountRef): Promise<Balance> {
    const balance = await this.#balance(demand, account);
    return owedBy(demand.payer, balance) > 0 ? this.#payDebt(demand, account, balance) : balance;
  }

  /** The key's own limits are never passed over. */
  async #share(payer: Payer): Promise<KeyShare | null> {
    const { keyBudgets, clock } = this.options;
    if (!payer.keyLimits) return null;
    for (;;) {
      const share = keyBudgets.shareOf(payer, this.#monthsFrom(clock.now()));
      if (share !== undefined) return share;
      await keyBudgets.read(payer, (work) => this.#withinDeadline(work));
    }
  }

  /** A request counts in the month in which it ends, so it is held in every month in which it may. */
  #monthsFrom(nowMs: number): string[] {
    const month = utcMonth(nowMs);
    const later = utcMonth(nowMs + LONGEST_REQUEST_MS);
    return later === month ? [month] : [month, later];
  }

  async #refuseByBudget({ demand, share }: Facts): Promise<void> {
    for (const kind of share ? KEY_BUDGETS : []) {
      const isFull = () => this.#isFull(share!, kind, demand, demand.tokensMin);
      const isHeld = () => fits(askingOfKey(share!, kind, demand, demand.tokensMin)!);
      if (!(await isFull())) continue;
      if (isHeld()) await this.options.settled();
      if (await isFull()) this.#refuseByKey(kind, demand, isHeld());
    }
  }

  #refuseByKey(kind: KeyLimitKind, { payer, fixed, tokensMin }: Demand, isHeld = false): never {
    const { clock, tokenPaceSeconds } = this.options;
    return refuseByKey(kind, {
      limits: payer.keyLimits!,
      isHeld,
      tokens: fixed.tokens + tokensMin,
      nowMs: clock.now(),
      paceSeconds: tokenPaceSeconds(payer.keyId!),
    });
  }

  /** Whether this one limit of the key has no room for so many output tokens. */
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

  /** What is new to this instance, as a month is when it begins, first pays what the user owes on any account. */
  async #quota(
    payer: Payer,
    limit: Quantity | null,
    load: (read: Read) => Promise<unknown>,
  ): Promise<Source> {
    if (limit === null) return UNLIMITED;
    const { clock, windows, payDebts } = this.options;
    const counted = this.#monthsFrom(clock.now()).map((month) => this.#windowsIn(payer, month));
    const limiting = counted.flatMap((month) => month.limiting);
    const alsoOn = counted.flatMap((month) => month.alsoOn);
    const unread = limiting.map(({ window }) => window).filter((window) => !windows.isKnown(window));
    const read = (window: QuotaWindow) =>
      windows.read(window, window.key.project === WHOLE_USER ? () => payDebts(payer) : undefined);
    if (unread.length > 0) await load(() => Promise.all(unread.map(read)));
    return {
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
  }

  /** A quota that is not drained pays debts first; a new month's is not. Returns the balance after that. */
  async #payDebt(demand: Who, account: AccountRef, before: Balance): Promise<Balance> {
    const { clock, windows, pointsPerUsd, balances, log } = this.options;
    const { payer, tier } = demand;
    const { userId } = payer;
    const whole = windows.get({ userId, month: utcMonth(clock.now()), project: WHOLE_USER });
    if (!windows.isKnown(whole)) await this.#load(demand, () => windows.read(whole));
    let balance = before;
    const left = leftForDebt(limitOf(tier), whole.used!);
    if (left * pointsPerUsd >= NANO_PER_USD) {
      try {
        await this.#withinDeadline(this.options.payDebts(payer));
        balance = await this.#withinDeadline(balances.load(account));
      } catch (error) {
        // The debt is known, so this must not fail open.
        log.warn("paying a debt from the quota failed", { user_id: userId, error });
      }
    }
    return balance;
  }

  /** What the account holds; a stale balance is used while it is refreshed in the background. */
  #balance(demand: Who, account: AccountRef): Balance | Promise<Balance> {
    const { balances } = this.options;
    const confirmed = balances.peek(account);
    if (confirmed) return confirmed;
    const last = balances.last(account);
    if (!last) return this.#load(demand, () => balances.load(account));
    // While the database is away the last one stays in force; the journal's writer says so in the log.
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
  unitsMax: wholeOf(demand),
});

function askingOfKey(share: KeyShare, kind: KeyLimitKind, demand: Demand, tokens: number): Asking | null {
  const cost = plainCost(demand);
  const purse = share.purse(kind, cost);
  return purse && { purses: [purse], alsoOn: NO_NAMES, ...cost, unitsMin: tokens, unitsMax: tokens };
}

/** Whether it would fit if no request in progress held anything. */
const fits = (asking: Asking): boolean =>
  unitsThatFit(asking, ({ limit, spent }) => ({
    money: limit.money - spent.money,
    tokens: limit.tokens - spent.tokens,
  })) !== REFUSED;

const ownOf = (payer: Payer): Payer => ({ ...payer, groupId: null });
const owedBy = ({ userId }: Payer, { debts }: Balance): number => debts?.[userId] ?? 0;

function failOpen(error: unknown): Payment {
  if (error instanceof Unknown) return UNKNOWN_PAYMENT;
  throw error;
}
