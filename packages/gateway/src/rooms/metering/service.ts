import { join } from "node:path";
import { REFUSED } from "../../bus/contract.ts";
import { oneAtATime } from "../../kernel/bounded.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { MULTIPLIER_ONE, type Payer } from "../../kernel/payer.ts";
import { isCharged, type RequestLine } from "../../kernel/request-row.ts";
import type { Counter } from "../../observe/metrics.ts";
import { type Billing, UNKNOWN_TIER } from "../billing/index.ts";
import type { Needs } from "../foundation.ts";
import { type AccountRef, accountKey, type Ledger } from "../ledger/index.ts";
import { type MonthQuota, NANO_PER_USD, type Usage, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { AdmissionCheck } from "./admission.ts";
import { Admitted, type Admitting, type OwedRequest } from "./admitted.ts";
import type { Cover } from "./cover.ts";
import {
  believedCost,
  COST_NANO_USD_MAX,
  capped,
  demandOf,
  heldRates,
  nanoUsdOf,
  TOKENS_MAX,
} from "./demand.ts";
import type { ChargedEntry, JournalEntry } from "./journal/codec.ts";
import { Journal } from "./journal/journal.ts";
import { JournalWriter } from "./journal/writer.ts";
import { budgetsOf, KeyBudgets, tokenPaceName } from "./key-budgets.ts";
import {
  leftForDebt,
  limitOf,
  NANO_PER_POINT,
  NOTHING,
  negative,
  POINTS_LIMIT,
  spentPoints,
} from "./limits.ts";
import { Paces, TELLING_TOKENS } from "./paces.ts";
import { RecentTokens } from "./recent-tokens.ts";
import { refuseTool, refuseUnpriced } from "./refusals.ts";
import { reservedBy, type SettleNews, type Settler } from "./settler.ts";
import type {
  Admission,
  AdmitOptions,
  FinalUsage,
  FixedBound,
  PointsHold,
  Rate,
  RecordOptions,
} from "./types.ts";
import { QuotaWindows, spentNames, usedOf } from "./windows.ts";

const JOURNAL_DIR = "journal";
/** How long a reader waits for rows that are still in the journal. */
const READ_FLUSH_MS = 2_000;
/** Asks each instance to settle what it has journaled. */
const SETTLE = "settle";
/** How long a start waits until the journal of an earlier run is settled, because until then its spending is unknown. */
const CATCH_UP_MS = 5_000;
const LEARN_PACES_EVERY_MS = 5 * 60_000;
const RATE_WINDOW_MS = 60_000;
const RATE_RETRY_AFTER_SECONDS = 60;
const TEXT_MAX = { model: 128, channel: 64, ref: 64 };
const NO_REQUEST = {
  surface: null,
  modelAsked: null,
  backend: null,
  reason: null,
  status: null,
  code: null,
  message: null,
  attempts: 0,
  failedAttempts: null,
  queueMs: 0,
  firstTokenMs: null,
  durationMs: 0,
  clientIp: null,
};
const UNCHARGED = {
  channel: null,
  costMultiplierMicros: MULTIPLIER_ONE,
  hold: "none",
  tier: null,
  budgets: 0,
} as const;

export interface MeteringOptions
  extends Needs<"clock" | "ids" | "log" | "counter" | "instances" | "metrics"> {
  settler: Settler;
  billing: Billing;
  usage: Usage;
  ledger: Pick<Ledger, "publish" | "balances" | "transaction" | "debtsOf" | "payFromQuota">;
  pointsPerUsd: number;
  /** Whether users with limits are refused models without a price. */
  refusesUnpriced?: boolean;
  dataDir: string;
  /** Calls `run` before the next answer is sent, so that its usage is recorded by then; by default at once. */
  beforeAnswers?(run: () => void): void;
}

const keyTooFast: Rate["refuse"] = (max, waitMs) =>
  fail(
    "rate_limited",
    `More than ${max} requests a minute, the limit of this key; slow down, or have its owner raise the limit (keys.update)`,
    { retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)), rest: { limit: "requests_per_minute" } },
  );
const sharedTooFast =
  (whose: string): Rate["refuse"] =>
  (max) =>
    fail("rate_limited", `More than ${max} requests a minute, ${whose}; slow down`, {
      retryAfterSeconds: RATE_RETRY_AFTER_SECONDS,
    });
const tierTooFast = sharedTooFast("the tier's limit for a key");
const groupTooFast = sharedTooFast("the group's ceiling");

/** Postgres rejects NUL in texts, and columns have maximum widths. */
const tidy = (text: string, lengthMax: number): string =>
  (text.includes("\u0000") ? text.replaceAll("\u0000", "") : text).slice(0, lengthMax);

export class MeteringService {
  readonly #journal: Journal;
  readonly #writer: JournalWriter;
  holdCount = 0;
  readonly #paces = new Paces();
  readonly #endLearning: () => void;
  readonly #windows: QuotaWindows;
  readonly #keyBudgets: KeyBudgets;
  readonly #recentTokens: RecentTokens;
  readonly #check: AdmissionCheck;
  readonly #admitting: Admitting;
  readonly #requests: Counter;
  readonly #cost: Counter;
  readonly #cached: Counter;
  readonly #givenUp: Counter;

  constructor(readonly options: MeteringOptions) {
    const { metrics } = options;
    this.#requests = metrics.counter(
      "gateway_requests_total",
      "Requests by surface and code, ok or an error's",
    );
    this.#cost = metrics.counter("gateway_cost_usd_total", "What was charged, in US dollars, by model");
    this.#cached = metrics.counter("gateway_cached_tokens_total", "Prompt tokens that upstreams had cached");
    this.#givenUp = metrics.counter(
      "gateway_given_up_cost_usd_total",
      "What attempts that a route gave up may have cost, by model; nobody is charged for them",
    );
    this.#admitting = {
      billing: options.billing,
      clock: options.clock,
      paces: this.#paces,
      givenUp: ({ model, isOwn = false }, usage) => {
        const { costNanoUsd } = this.#priceOf(model, isOwn, { backend: "", estimated: true, ...usage });
        if (costNanoUsd) this.#givenUp.add(costNanoUsd / NANO_PER_USD, { model });
      },
      ended: (admission, owed, kind) => {
        if (admission.isHeld) this.holdCount--;
        return owed && this.#append(admission.options, owed, kind);
      },
    };
    const { settler, clock, log, ids, usage, ledger, pointsPerUsd, counter, dataDir, instances } = options;
    const { beforeAnswers } = options;
    this.#windows = new QuotaWindows({ store: usage.store, clock, log });
    this.#keyBudgets = new KeyBudgets({ store: usage.store, clock, log });
    this.#recentTokens = new RecentTokens({ clock, counter });
    this.#check = new AdmissionCheck({
      clock,
      log,
      balances: ledger.balances,
      windows: this.#windows,
      counter,
      keyBudgets: this.#keyBudgets,
      settled: () => usage.settled(),
      tokenPaceSeconds: (keyId) =>
        this.#recentTokens.secondsUntilFewer(tokenPaceName(keyId)) ?? RATE_RETRY_AFTER_SECONDS,
      pointsPerUsd,
      payDebts: (payer) => this.#payDebts(payer),
    });
    this.#journal = Journal.open({
      dir: join(dataDir, JOURNAL_DIR),
      instance: ids.uuid(),
      clock,
      log,
      ...(beforeAnswers && { beforeAnswers }),
    });
    this.#writer = new JournalWriter({
      journal: this.#journal,
      clock,
      log,
      settler,
      settled: (news) => this.#settled(news),
      givenUp: (entries) => this.#release(entries),
    });
    const flush = async () => String(await this.#writer.flush(READ_FLUSH_MS));
    instances?.serve(SETTLE, flush);
    const settle = oneAtATime(async () => {
      await (instances?.askAll(SETTLE, "", READ_FLUSH_MS) ?? flush());
    });
    // A run that began earlier may miss the latest rows, so callers wait for it and share the next one.
    usage.settled = async () => {
      await settle.running?.catch(() => {});
      await settle();
    };
    this.#writer.start();
    this.#endLearning = clock.every(LEARN_PACES_EVERY_MS, () => void this.#learnPaces());
  }

  /** Learns from the stored rows of all instances how fast models write. */
  async #learnPaces(): Promise<void> {
    const { usage, log } = this.options;
    try {
      this.#paces.learn(await usage.store.longAnswers(TELLING_TOKENS));
    } catch (error) {
      log.warn("how fast models write could not be read", { error });
    }
  }

  /** To be called before requests come in. */
  async start(): Promise<void> {
    await this.#writer.caughtUp(CATCH_UP_MS);
    await this.#learnPaces();
  }

  /** Checks quota and takes the hold, or throws the refusal. */
  async admit(options: AdmitOptions): Promise<Admission> {
    this.#requirePriced(options);
    if (this.#journal.isFull) {
      fail("unavailable", "Usage cannot be recorded right now; try again later", { retryAfterSeconds: 30 });
    }
    return this.#admitted(options, await this.#check.check(demandOf(this.options.billing, options)));
  }

  /** The most that a request can cost, for a hold over several requests; throws if it has no price but needs one. */
  boundOf(options: AdmitOptions): Required<FixedBound> & Pick<FinalUsage, "rates"> {
    this.#requirePriced(options);
    const { fixed, perToken, tokensMax } = demandOf(this.options.billing, options);
    const nanoUsd = fixed.money + perToken.money * tokensMax;
    const rates = heldRates(this.options.billing, options, fixed.tokens) ?? undefined;
    return { costUsd: nanoUsd / NANO_PER_USD, tokens: fixed.tokens + tokensMax, rates };
  }

  /** Output tokens that a model may write in a second, over all requested answers. */
  tokensPerSecond({ model, bound }: AdmitOptions): number {
    return this.#paces.tokensIn(model, 1_000) * (("answers" in bound && bound.answers) || 1);
  }

  /** Renews the hold of a request that was admitted before a restart, without checks. */
  async resume(options: RecordOptions & { bound: FixedBound }): Promise<Admission> {
    return this.#admitted(options, await this.#check.resume(demandOf(this.options.billing, options)));
  }

  /** Refuses what has no price, a vendor's tool or the model itself, to those whose use is limited. */
  #requirePriced({ payer, model, isOwn, bound }: AdmitOptions): void {
    const { billing, refusesUnpriced } = this.options;
    if (isOwn || "costUsd" in bound) return;
    const tool = bound.tools?.unpriced;
    if (!refusesUnpriced && !tool) return;
    const isLimited = payer.groupId !== null || budgetsOf(payer.keyLimits) > 0;
    if (!isLimited && limitOf(billing.tier(payer.tier)) === null) return;
    const isPriced = billing.pricing.priceOf(model, false).input !== null;
    if (isPriced && tool) refuseTool(tool);
    if (!isPriced && refusesUnpriced) refuseUnpriced(model);
  }

  #priceOf(model: string, isOwn: boolean, usage: FinalUsage) {
    if (usage.costUsd !== undefined) return { costNanoUsd: nanoUsdOf(usage.costUsd) };
    const bill = this.options.billing.pricing.bill(model, usage, isOwn);
    const { rates, promptTokens, completionTokens } = usage;
    const byTokens = rates
      ? Math.ceil(promptTokens * rates.inputNanoUsd + completionTokens * rates.outputNanoUsd)
      : bill.costNanoUsd;
    const costNanoUsd = believedCost(usage.reportedUsd, byTokens) ?? byTokens;
    if (costNanoUsd === null) return { ...bill, unpriced: !isOwn };
    const toolsNanoUsd = nanoUsdOf(costNanoUsd === byTokens ? (usage.toolsUsd ?? 0) : 0);
    return { ...bill, costNanoUsd: capped(costNanoUsd + toolsNanoUsd, COST_NANO_USD_MAX) };
  }

  #admitted(options: AdmitOptions, cover: Cover): Admission {
    const admission = new Admitted(this.#admitting, options, cover);
    if (admission.isHeld) this.holdCount++;
    return admission;
  }

  /** Holds points for a transfer; null if fewer are free. Release it when the transfer has ended, committed or not. */
  async holdPoints(account: AccountRef, points: number): Promise<PointsHold | null> {
    const { ledger, counter } = this.options;
    const name = accountKey(account);
    const fixed = { money: points * NANO_PER_POINT, tokens: 0 };
    const balance = ledger.balances.peek(account) ?? (await ledger.balances.load(account));
    const purse = { name, limit: POINTS_LIMIT, spent: spentPoints(balance), unitsBeyond: null };
    const asking = { purses: [purse], alsoOn: [], fixed, perUnit: NOTHING, unitsMin: 0, unitsMax: 0 };
    if ((await counter.grant(asking)) === REFUSED) return null;
    // Send the new balance too: an instance that missed the transfer would count the points twice.
    const release = () => {
      const known = ledger.balances.last(account);
      const spent = known ? { spent: spentPoints(known) } : {};
      counter.change([{ name, amount: negative(fixed), ...spent }]);
    };
    return { release };
  }

  /** Journals usage of a job that was admitted before a restart, once per request id. Never throws. Returns the price or null. */
  record(options: RecordOptions, usage: FinalUsage): number | null {
    return this.#append(options, { usage, outcome: null }, "none");
  }

  /** Journals a request that costs nothing; false if the journal is full. */
  write(line: RequestLine): boolean {
    if (this.#journal.isFull) return false;
    this.#journal.append({ ...line, ...UNCHARGED });
    this.#count(line);
    this.#writer.wake();
    return true;
  }

  /** When this returns, everything settled so far is in the journal. Call it before storing an answer. */
  written(): void {
    this.#journal.writeGathered();
  }

  #count({ surface, code, model, costNanoUsd, cachedTokens }: RequestLine): void {
    if (surface !== null) this.#requests.add(1, { surface, code: code ?? "ok" });
    if (model === null) return;
    if (costNanoUsd) this.#cost.add(costNanoUsd / NANO_PER_USD, { model });
    if (cachedTokens) this.#cached.add(cachedTokens, { model });
  }

  /** Returns the price in nano-dollars, or null if there is none. */
  #append(
    { requestId, payer, model: routed, isOwn = false, refId, record }: RecordOptions,
    { usage, outcome }: OwedRequest,
    hold: Cover["kind"],
  ): number | null {
    try {
      const atMs = this.options.clock.now();
      const model = tidy(routed, TEXT_MAX.model);
      // A request has one line; later charges get lines of their own.
      const isRequest = record && record.line === null;
      const promptTokens = capped(usage.promptTokens, TOKENS_MAX);
      const completionTokens = capped(usage.completionTokens, TOKENS_MAX);
      const entry: ChargedEntry = {
        ...(isRequest ? record.facts(atMs, model, outcome) : NO_REQUEST),
        requestId: record?.line ? this.options.ids.ordered() : requestId,
        atMs,
        userId: payer.userId,
        keyId: payer.keyId,
        attribution: payer.attribution,
        project: payer.project,
        groupId: payer.groupId,
        costMultiplierMicros: payer.costMultiplierMicros,
        model,
        channel: tidy(usage.backend, TEXT_MAX.channel),
        promptTokens,
        completionTokens,
        ...this.#priceOf(routed, isOwn, { ...usage, promptTokens, completionTokens }),
        refId: refId === null ? null : tidy(refId, TEXT_MAX.ref),
        estimated: usage.estimated,
        hold,
        // An unknown tier is looked up when the row is settled.
        tier: payer.tier === UNKNOWN_TIER ? null : payer.tier,
        budgets: budgetsOf(payer.keyLimits),
      };
      this.#journal.append(entry);
      this.#count(entry);
      if (isRequest) record.line = entry;
      const { counter, pointsPerUsd } = this.options;
      // Its cost stays reserved until the row is in the database.
      if (hold !== "none" || entry.budgets > 0) counter.change(reservedBy(entry, pointsPerUsd));
      if (payer.keyId !== null && payer.keyLimits && payer.keyLimits.tokensPerMinute !== null)
        this.#recentTokens.add(tokenPaceName(payer.keyId), promptTokens + completionTokens);
      this.#writer.wake();
      return entry.costNanoUsd;
    } catch (error) {
      this.options.log.error("writing usage to the journal failed", { request_id: requestId, usage, error });
      return null;
    }
  }

  /** Releases what written rows reserved, together with the new totals: otherwise late instances count it as free twice. */
  #settled({ months, keys, balances, changes }: SettleNews): void {
    const { ledger, counter } = this.options;
    ledger.publish(balances);
    this.#windows.written(months);
    this.#keyBudgets.written(keys);
    if (changes.length > 0) counter.change(changes);
  }

  /** Ends the reservations of rows that will never be in the database. */
  #release(entries: readonly JournalEntry[]): void {
    const { counter, pointsPerUsd } = this.options;
    const reserved = entries.filter(isCharged).flatMap((entry) => reservedBy(entry, pointsPerUsd));
    counter.change(reserved.map(({ name, amount }) => ({ name, amount: negative(amount) })));
  }

  async #payDebts(payer: Payer): Promise<void> {
    for (const { account } of await this.options.ledger.debtsOf(payer.userId)) {
      const months = await this.#payDebt(payer, account);
      this.#windows.written(months);
      const changes = months.flatMap(spentNames).map(({ name, spent }) => ({ name, amount: NOTHING, spent }));
      if (changes.length > 0) this.options.counter.change(changes);
    }
  }

  /** Lets this month's quota pay a debt, as use of it, under the account's lock. Returns the month's new sums. */
  #payDebt({ userId, tier }: Payer, account: AccountRef): Promise<MonthQuota[]> {
    const { ledger, usage, billing, clock, pointsPerUsd } = this.options;
    const month = utcMonth(clock.now());
    const limit = limitOf(billing.tier(tier));
    return ledger.transaction(async (tx) => {
      let months: MonthQuota[] = [];
      const points = await ledger.payFromQuota(tx, { account, userId }, async () => {
        months = await usage.store.lockMonths(tx, [{ userId, month, project: WHOLE_USER }]);
        return Math.floor((leftForDebt(limit, usedOf(months[0]!)) * pointsPerUsd) / NANO_PER_USD);
      });
      if (points <= 0) return months;
      const costNanoUsd = Math.ceil((points * NANO_PER_USD) / pointsPerUsd);
      return usage.store.addDebt(tx, { userId, month, costNanoUsd });
    });
  }

  /** The limits of a key's requests per minute: its own, the tier's and the group's. The first full one refuses. */
  ratesOf({ keyId, keyLimits, groupId, rpmCeiling, tier }: Payer): readonly Rate[] {
    if (keyId === null) return [];
    const windowMs = RATE_WINDOW_MS;
    const { rpm } = this.options.billing.tier(tier);
    const rates: Rate[] = [{ key: `rpm:${keyId}`, max: rpm, windowMs, refuse: tierTooFast }];
    const most = keyLimits?.requestsPerMinute ?? null;
    // The key's own limit is first, so that what it refuses does not count against the shared ones.
    if (most !== null) rates.unshift({ key: `key-rpm:${keyId}`, max: most, windowMs, refuse: keyTooFast });
    // All keys of all members count together.
    if (groupId !== null && rpmCeiling !== null)
      rates.push({ key: `group-rpm:${groupId}`, max: rpmCeiling, windowMs, refuse: groupTooFast });
    return rates;
  }

  /** Counts one request against them, or throws the refusal. */
  async checkRate(payer: Payer): Promise<void> {
    const rates = this.ratesOf(payer);
    const exceeded = rates.length > 0 && (await this.options.counter.hit(rates));
    if (exceeded) rates[exceeded.at]!.refuse(rates[exceeded.at]!.max, exceeded.waitMs);
  }

  async payerOf({ userId }: Pick<Actor, "userId">): Promise<Payer> {
    try {
      return personal(userId, await this.options.billing.tierOf(userId));
    } catch (error) {
      this.options.log.warn("the tier is not known; the request is let through", { user_id: userId, error });
      return personal(userId, UNKNOWN_TIER);
    }
  }

  get figures(): { rows: number; bytes: number; stalled_seconds: number } {
    return { ...this.#journal.backlog, stalled_seconds: this.#writer.stalledSeconds };
  }
  get lostRows(): number {
    return this.#journal.lost;
  }

  /** True once everything recorded so far is in the database; false when that took too long. */
  flush(timeoutMs: number): Promise<boolean> {
    return this.#writer.flush(timeoutMs);
  }

  /** Drains until the deadline; the next start finds the rest. */
  async close(deadlineMs: number): Promise<void> {
    this.#endLearning();
    await this.#writer.close(deadlineMs);
    this.#recentTokens.close();
    this.#journal.close();
  }
}

/** A signed-in person pays from the wallet, has no project and no key. */
const personal = (userId: string, tier: string): Payer => ({
  userId,
  keyId: null,
  attribution: `jwt-${userId}`,
  project: null,
  groupId: null,
  costMultiplierMicros: MULTIPLIER_ONE,
  rpmCeiling: null,
  keyLimits: null,
  tier,
});
