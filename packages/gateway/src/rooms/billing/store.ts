import type { z } from "zod";
import { type Database, upsertRow } from "../../storage/contract.ts";
import type { Tier as TierSchema } from "./methods.ts";
import type { Price } from "./price-schema.ts";
import type { VideoPrice } from "./video-cost.ts";

/** Tiers that administrators add are listed after the built-in ones. */
const ADDED_POSITION = 100;

export type Tier = z.output<typeof TierSchema>;

type VideoPriceRow = Omit<VideoPrice, "resolution_coeff"> & { resolution_coeff: string };

const VIDEO_COLUMNS =
  "model, mode, base_price, price_per_second, price_per_frame, resolution_coeff, currency, enabled";

const toVideoPrice = (row: VideoPriceRow): VideoPrice => ({
  ...row,
  resolution_coeff: JSON.parse(row.resolution_coeff) as Record<string, number>,
  enabled: Boolean(row.enabled),
});

export class BillingStore {
  constructor(readonly db: Database) {}

  tiers(): Promise<Tier[]> {
    return this.db.all<Tier>(
      "SELECT name, monthly_usd_quota, monthly_token_quota, rpm FROM billing_tiers ORDER BY position, name",
    );
  }

  async tierOf(userId: string): Promise<string | null> {
    const row = await this.db.get<{ tier: string }>("SELECT tier FROM users WHERE id = $1", [userId]);
    return row?.tier ?? null;
  }

  /** Returns the user's id; null if there is no such account. */
  async setTier(whose: "id" | "email", value: string, tier: string): Promise<string | null> {
    const sql = `UPDATE users SET tier = $2 WHERE ${whose} = $1 RETURNING id`;
    return (await this.db.get<{ id: string }>(sql, [value, tier]))?.id ?? null;
  }

  /** Set by administrators; `match` is a model id in lower case, or its beginning with a star. */
  async modelPrices(): Promise<Price[]> {
    const rows = await this.db.all<{ model: string; price: string }>(
      "SELECT model, price FROM model_prices ORDER BY model",
    );
    return rows.map(({ model, price }) => ({ ...JSON.parse(price), match: model }));
  }

  async setModelPrices(prices: readonly Price[], now: string): Promise<void> {
    await this.db.transaction(async (tx) => {
      for (const { match: model, ...price } of prices) {
        const row = { model, price: JSON.stringify(price), updated_at: now };
        await upsertRow(tx, "model_prices", row, { key: "model" });
      }
    });
  }

  async removeModelPrice(model: string): Promise<boolean> {
    return (await this.db.run("DELETE FROM model_prices WHERE model = $1", [model])) > 0;
  }

  async saveTier(tier: Tier): Promise<void> {
    const row = { ...tier, position: ADDED_POSITION };
    await upsertRow(this.db, "billing_tiers", row, { key: "name", kept: ["position"] });
  }

  async videoPrices(): Promise<VideoPrice[]> {
    const rows = await this.db.all<VideoPriceRow>(
      `SELECT ${VIDEO_COLUMNS} FROM video_pricing ORDER BY model`,
    );
    return rows.map(toVideoPrice);
  }

  async videoPrice(model: string): Promise<VideoPrice | null> {
    const row = await this.db.get<VideoPriceRow>(
      `SELECT ${VIDEO_COLUMNS} FROM video_pricing WHERE model = $1`,
      [model],
    );
    return row && toVideoPrice(row);
  }

  async setVideoPrice(price: VideoPrice): Promise<void> {
    const row = { ...price, resolution_coeff: JSON.stringify(price.resolution_coeff) };
    await upsertRow(this.db, "video_pricing", row, { key: "model" });
  }
}

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
