import type { BillingStore, Tier } from "./store.ts";

export const DEFAULT_TIER = "free";
/** The tier of a user whose tier cannot be read. It has no limits: what cannot be checked is allowed. */
export const UNKNOWN_TIER = "unknown";
const NO_LIMITS: Tier = {
  name: UNKNOWN_TIER,
  monthly_usd_quota: null,
  monthly_token_quota: null,
  rpm: Number.MAX_SAFE_INTEGER,
};

export class Tiers {
  #byName = new Map<string, Tier>();

  constructor(readonly store: BillingStore) {}

  /** Throws if they cannot be read or are incomplete: no service is better than wrong limits. */
  async load(): Promise<void> {
    const byName = new Map((await this.store.tiers()).map((tier) => [tier.name, tier]));
    if (!byName.has(DEFAULT_TIER))
      throw new Error(`billing_tiers has no row "${DEFAULT_TIER}", which accounts without a tier need`);
    this.#byName = byName;
  }

  get all(): Tier[] {
    return [...this.#byName.values()];
  }

  /** A name that is not in the table gets the default's limits. */
  tier(name: string): Tier {
    if (name === UNKNOWN_TIER) return NO_LIMITS;
    return this.#byName.get(name) ?? this.#byName.get(DEFAULT_TIER)!;
  }

  async tierOf(userId: string): Promise<string> {
    return (await this.store.tierOf(userId)) ?? DEFAULT_TIER;
  }
}
