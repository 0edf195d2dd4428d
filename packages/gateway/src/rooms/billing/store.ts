import type { Database } from "../../storage/contract.ts";
import type { Price } from "./price-schema.ts";
import type { VideoPrice } from "./video-cost.ts";

/** Tiers that administrators add come after those of the first day. */
const ADDED_POSITION = 100;

/** Limits of a tier; null means unlimited. */
export interface Tier {
  name: string;
  monthlyUsdQuota: number | null;
  monthlyTokenQuota: number | null;
  rpm: number;
}

interface TierRow {
  name: string;
  monthly_usd_quota: number | null;
  monthly_token_quota: number | null;
  rpm: number;
}

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

  async tiers(): Promise<Tier[]> {
    const rows = await this.db.all<TierRow>(
      "SELECT name, monthly_usd_quota, monthly_token_quota, rpm FROM billing_tiers ORDER BY position, name",
    );
    return rows.map((row) => ({
      name: row.name,
      monthlyUsdQuota: row.monthly_usd_quota,
      monthlyTokenQuota: row.monthly_token_quota,
      rpm: row.rpm,
    }));
  }

  async tierOf(userId: string): Promise<string | null> {
    const row = await this.db.get<{ tier: string }>("SELECT tier FROM users WHERE id = $1", [userId]);
    return row?.tier ?? null;
  }

  async setTierOf(userId: string, tier: string): Promise<void> {
    await this.db.run("UPDATE users SET tier = $2 WHERE id = $1", [userId, tier]);
  }

  /** The user's id, or null when nobody has this email. */
  async setTier(email: string, tier: string): Promise<string | null> {
    const row = await this.db.get<{ id: string }>(
      "UPDATE users SET tier = $2 WHERE email = $1 RETURNING id",
      [email, tier],
    );
    return row?.id ?? null;
  }

  /** What administrators set; `match` is a whole model id in lower case. */
  async modelPrices(): Promise<Price[]> {
    const rows = await this.db.all<{ model: string; price: string }>(
      "SELECT model, price FROM model_prices ORDER BY model",
    );
    return rows.map(({ model, price }) => ({ ...JSON.parse(price), match: model }));
  }

  async setModelPrices(prices: readonly Price[], now: string): Promise<void> {
    await this.db.transaction(async (tx) => {
      for (const { match, ...price } of prices)
        await tx.run(
          `INSERT INTO model_prices (model, price, updated_at) VALUES ($1, $2, $3)
           ON CONFLICT (model) DO UPDATE SET price = excluded.price, updated_at = excluded.updated_at`,
          [match, JSON.stringify(price), now],
        );
    });
  }

  async removeModelPrice(model: string): Promise<boolean> {
    return (await this.db.run("DELETE FROM model_prices WHERE model = $1", [model])) > 0;
  }

  async saveTier({ name, monthlyUsdQuota, monthlyTokenQuota, rpm }: Tier): Promise<void> {
    await this.db.run(
      `INSERT INTO billing_tiers (name, position, monthly_usd_quota, monthly_token_quota, rpm)
       VALUES ($1, ${ADDED_POSITION}, $2, $3, $4)
       ON CONFLICT (name) DO UPDATE SET monthly_usd_quota = $2, monthly_token_quota = $3, rpm = $4`,
      [name, monthlyUsdQuota, monthlyTokenQuota, rpm],
    );
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
    await this.db.run(
      `INSERT INTO video_pricing (${VIDEO_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
       ON CONFLICT (model) DO UPDATE SET mode = excluded.mode, base_price = excluded.base_price,
         price_per_second = excluded.price_per_second, price_per_frame = excluded.price_per_frame,
         resolution_coeff = excluded.resolution_coeff, currency = excluded.currency, enabled = excluded.enabled`,
      [
        price.model,
        price.mode,
        price.base_price,
        price.price_per_second,
        price.price_per_frame,
        JSON.stringify(price.resolution_coeff),
        price.currency,
        price.enabled,
      ],
    );
  }
}
