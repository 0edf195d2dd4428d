import { BoundedMap } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail, failParam } from "../../kernel/errors.ts";
import { PRINCIPAL_CHANGED, USER_CHANGED } from "../../kernel/topics.ts";
import type { Needs } from "../foundation.ts";
import type { Balances } from "../ledger/index.ts";
import { NANO_PER_USD, type Usage, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { BUILT_IN_PRICES, type Price } from "./price-schema.ts";
import { Pricing } from "./pricing.ts";
import { type OperatorPrices, readPricingFile, watchPricingFile } from "./pricing-file.ts";
import { BillingStore, type Tier, Tiers } from "./store.ts";
import { FALLBACK_VIDEO_PRICE, type VideoPrice, type VideoSize, videoCostNanoUsd } from "./video-cost.ts";

const USD = "USD";
/** An administrator changed tiers or prices. The message is empty. */
const TERMS_CHANGED = "billing-terms-changed";
const MODEL_PRICES_MAX = 10_000;
const TIERS_REFRESH_MS = 60_000;

export interface BillingOptions extends Needs<"db" | "bus" | "clock" | "log"> {
  usage: Usage;
  balances: Balances;
  pointsPerUsd: number;
  pricingFile: string | null;
}

const nanoOf = (usd: number | null) => (usd === null ? null : Math.round(usd * NANO_PER_USD));

const PROJECTS_MAX = 100;

export class Billing {
  readonly store: BillingStore;
  readonly pricing: Pricing;
  #usdPer: ReadonlyMap<string, number> = new Map();
  /** Model ids and patterns, in lower case, with a price that an administrator set. */
  #ownPrices: ReadonlySet<string> = new Set();
  readonly tiers: Tiers;
  readonly #userTiers = new BoundedMap<string, string>();
  /** Grows with every invalidation, so that an older look-up is not cached after it. */
  #userTiersEpoch = 0;
  readonly #ends: (() => void)[] = [];

  constructor(readonly options: BillingOptions) {
    this.store = new BillingStore(options.db);
    this.tiers = new Tiers(this.store);
    const { pricingFile: path, clock, log, bus } = options;
    const operator = path === null ? null : readPricingFile(path);
    this.pricing = new Pricing(BUILT_IN_PRICES, operator?.prices ?? []);
    if (operator) this.#usdPer = operator.usdPer;
    if (path !== null) {
      const onChange = ({ prices, usdPer }: OperatorPrices) => {
        this.pricing.setOperator(prices);
        this.#usdPer = usdPer;
      };
      this.#ends.push(watchPricingFile({ path, clock, log, onChange }));
    }
    bus.onGap(() => {
      this.#userTiersEpoch++;
      this.#userTiers.clear();
    });
    const forget = (id: string) => {
      this.#userTiersEpoch++;
      this.#userTiers.delete(id);
    };
    this.#ends.push(bus.subscribe(PRINCIPAL_CHANGED, forget), bus.subscribe(USER_CHANGED, forget));
  }

  async start(): Promise<void> {
    const { clock, log, bus } = this.options;
    await this.#loadTerms();
    const refresh = () =>
      this.#loadTerms().catch((error) =>
        log.warn("tiers and prices not refreshed; the known ones stay in force", { error }),
      );
    this.#ends.push(clock.every(TIERS_REFRESH_MS, refresh), bus.subscribe(TERMS_CHANGED, refresh));
  }

  close(): void {
    for (const end of this.#ends.splice(0)) end();
  }

  async #loadTerms(): Promise<void> {
    const prices = await this.store.modelPrices();
    this.#ownPrices = new Set(prices.map(({ match }) => match));
    this.pricing.setByAdministrators(prices);
    await this.tiers.load();
  }

  tier(name: string): Tier {
    return this.tiers.tier(name);
  }

  /** For requests that authenticate with a JWT; synchronous if the tier is cached. */
  tierOf(userId: string): string | Promise<string> {
    return this.#userTiers.get(userId) ?? this.#loadTierOf(userId);
  }

  async #loadTierOf(userId: string): Promise<string> {
    const epoch = this.#userTiersEpoch;
    const tier = await this.tiers.tierOf(userId);
    if (epoch === this.#userTiersEpoch) this.#userTiers.set(userId, tier);
    return tier;
  }

  /** Patterns with a price that administrators set: `openai/*`. */
  get pricePatterns(): string[] {
    return [...this.#ownPrices].filter((match) => match.endsWith("*"));
  }

  /** Sets all of them or none. */
  async setModelPrices(prices: readonly Price[]): Promise<void> {
    const named = prices.map((price) => ({ ...price, match: price.match.toLowerCase() }));
    const models = new Set([...this.#ownPrices, ...named.map(({ match }) => match)]);
    if (models.size > MODEL_PRICES_MAX)
      fail("app_error", `There are ${MODEL_PRICES_MAX} prices, the most that are kept; remove some first`);
    await this.store.setModelPrices(named, isoTime(this.options.clock.now()));
    await this.#termsChanged();
  }

  async removeModelPrice(model: string): Promise<boolean> {
    const removed = await this.store.removeModelPrice(model.toLowerCase());
    await this.#termsChanged();
    return removed;
  }

  async setTierLimits(tier: Tier): Promise<void> {
    await this.store.saveTier(tier);
    await this.#termsChanged();
  }

  async #termsChanged(): Promise<void> {
    await this.#loadTerms();
    this.options.bus.publish(TERMS_CHANGED, "");
  }

  async plan(actor: Actor) {
    const { usage, balances, clock, pointsPerUsd } = this.options;
    const current = this.tier(await this.tierOf(actor.userId));
    const now = { userId: actor.userId, month: utcMonth(clock.now()) };
    const month = await usage.month({ ...now, project: WHOLE_USER });
    const projects = await usage.store.projects(now, PROJECTS_MAX);
    // After the month: reading that brings the newest requests into the ledger.
    const { balance, debts } = await balances.load({ type: "user", id: actor.userId });
    const left = (quota: number | null, used: number) => (quota === null ? null : Math.max(0, quota - used));
    const window = (nanoUsd: number, tokens: number) => {
      const usdLeftNano = left(nanoOf(current.monthly_usd_quota), nanoUsd);
      const tokensLeft = left(current.monthly_token_quota, tokens);
      return {
        quota_cost_usd: nanoUsd / NANO_PER_USD,
        quota_tokens: tokens,
        remaining: { cost_usd: usdLeftNano === null ? null : usdLeftNano / NANO_PER_USD, tokens: tokensLeft },
        exceeded: usdLeftNano === 0 || tokensLeft === 0,
      };
    };
    const signedIn = window(month.quotaCostNanoUsd, month.quotaTokens);
    const keys = window(month.keyQuotaCostNanoUsd, month.keyQuotaTokens);
    return {
      tiers: this.tiers.all,
      current_tier: current.name,
      usage: {
        cost_usd: month.costNanoUsd / NANO_PER_USD,
        tokens: month.tokens,
        requests: month.requests,
        quota_cost_usd: signedIn.quota_cost_usd,
        quota_tokens: signedIn.quota_tokens,
      },
      remaining: signedIn.remaining,
      quota_exceeded: keys.exceeded,
      windows: {
        signed_in: signedIn,
        keys,
        projects: projects.map(({ project, quotaCostNanoUsd, quotaTokens }) => ({
          project,
          ...window(quotaCostNanoUsd, quotaTokens),
        })),
      },
      points_balance: balance,
      debt_points: debts?.[actor.userId] ?? 0,
      points_per_usd: pointsPerUsd,
    };
  }

  requireTier(tier: string): void {
    const names = this.tiers.all.map(({ name }) => name);
    if (!names.includes(tier)) failParam("tier", `must be one of ${names.join(", ")}`);
  }

  async setTier(userId: string, tier: string): Promise<void> {
    await this.#setTier("id", userId, tier);
  }

  async setPlan(email: string, tier: string): Promise<void> {
    if (!(await this.#setTier("email", email, tier)))
      fail("app_error", `No account has the email ${email}; it must register first`);
  }

  async #setTier(whose: "id" | "email", value: string, tier: string): Promise<boolean> {
    this.requireTier(tier);
    const userId = await this.store.setTier(whose, value, tier);
    if (userId === null) return false;
    this.options.bus.publish(PRINCIPAL_CHANGED, userId);
    this.options.bus.publish(USER_CHANGED, userId);
    return true;
  }

  /** A model without a price, or with a disabled one, costs the fallback price. */
  async videoCostNanoUsd(model: string, size: VideoSize): Promise<number> {
    const row = await this.store.videoPrice(model);
    if (!row?.enabled) return videoCostNanoUsd(FALLBACK_VIDEO_PRICE, size);
    return Math.round(videoCostNanoUsd(row, size) * this.#rateOf(row));
  }

  #rateOf({ model, currency }: VideoPrice): number {
    const code = currency.toUpperCase();
    if (code === USD) return 1;
    return (
      this.#usdPer.get(code) ??
      fail(
        "unavailable",
        `The price of ${model} is in ${code}, and the pricing file has no rate for it: an operator can add "usd_per": {"${code}": …} there`,
      )
    );
  }
}
