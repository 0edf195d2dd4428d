import type { z } from "zod";
import {
  countRows,
  type Database,
  insertRow,
  type Queryable,
  type Transaction,
  updateRows,
} from "../../storage/contract.ts";
import type { LimitRow } from "./limits.ts";
import type { CapturedKeys } from "./methods.ts";

export interface KeyRow extends LimitRow {
  id: string;
  name: string;
  project: string;
  key_prefix: string;
  group_id: string | null;
  active: boolean;
  created_at: string;
  revoked_at: string | null;
  /** Until when its prompts and answers are captured; null or past: not at all. */
  capture_until: string | null;
}

export type KeyChanges = Partial<KeyRow & { key_hash: string }>;

export interface ListedKey extends KeyRow {
  month: string | null;
  month_cost_nano_usd: number | null;
  total_cost_nano_usd: number | null;
  last_used_ms: number | null;
  refused_ms: number | null;
  refusal_code: string | null;
  refusal_message: string | null;
}

const isActive = <T extends { active: boolean }>(row: T): T => ({ ...row, active: Boolean(row.active) });
/** Twice the number of active keys that an account may have. */
const LISTED_MAX = 1_000;
const LIMITS = [
  "expires_at",
  "monthly_budget_nano_usd",
  "total_budget_nano_usd",
  "allowed_models",
  "requests_per_minute",
  "tokens_per_minute",
] as const satisfies (keyof LimitRow)[];
const OWN = "id name project key_prefix group_id active created_at revoked_at capture_until".split(" ");
const OF_KEY = [...OWN, ...LIMITS].map((column) => `k.${column}`).join(", ");

export class KeyStore {
  constructor(readonly db: Database) {}

  async insert(on: Queryable, key: KeyRow & { user_id: string; key_hash: string }): Promise<void> {
    await insertRow(on, "api_keys", key);
  }

  /** Newest first. Beyond `LISTED_MAX` the oldest revoked keys are left out. */
  async listOf(userId: string): Promise<ListedKey[]> {
    const rows = await this.db.all<ListedKey>(
      `SELECT ${OF_KEY}, s.month, s.month_cost_nano_usd, s.total_cost_nano_usd, s.last_used_ms, r.refused_ms,
         r.code AS refusal_code, r.message AS refusal_message
       FROM api_keys k LEFT JOIN key_spend s ON s.key_id = CAST(k.id AS TEXT)
         LEFT JOIN key_refusals r ON r.key_id = k.id
       WHERE k.id IN
         (SELECT id FROM api_keys WHERE user_id = $1 ORDER BY active DESC, created_at DESC, id LIMIT ${LISTED_MAX})
       ORDER BY k.created_at DESC, k.id`,
      [userId],
    );
    return rows.map(isActive);
  }

  /** The user's key; null: anyone's. */
  async lock(tx: Transaction, keyId: string, userId: string | null): Promise<KeyRow | null> {
    const locking = tx.dialect === "postgres" ? "FOR UPDATE" : "";
    const sql = `SELECT ${OF_KEY} FROM api_keys k WHERE k.id = $1 AND k.user_id = COALESCE($2, k.user_id) ${locking}`;
    const row = await tx.get<KeyRow>(sql, [keyId, userId]);
    return row && isActive(row);
  }

  /** False when there is no such key. */
  async update(on: Queryable, id: string, changes: KeyChanges): Promise<boolean> {
    return (await updateRows(on, "api_keys", { id }, changes)) > 0;
  }

  captured(now: string): Promise<z.output<typeof CapturedKeys>> {
    return this.db.all(
      `SELECT k.id AS key_id, k.name, k.key_prefix, u.email AS user_email, k.capture_until
       FROM api_keys k JOIN users u ON u.id = k.user_id
       WHERE k.capture_until > $1 AND k.active ORDER BY k.capture_until, k.id LIMIT ${LISTED_MAX}`,
      [now],
    );
  }

  countActive(userId: string): Promise<number> {
    return countRows(this.db, "api_keys WHERE user_id = $1 AND active", [userId]);
  }

  /** True if the key is the user's; a second revocation keeps the first time. */
  async revoke(keyId: string, userId: string | null, now: string): Promise<boolean> {
    const changed = await this.db.run(
      `UPDATE api_keys SET active = FALSE, revoked_at = COALESCE(revoked_at, $3)
       WHERE id = $1 AND user_id = COALESCE($2, user_id)`,
      [keyId, userId, now],
    );
    return changed > 0;
  }

  /** What the key may do; null if it is unknown or revoked, or its user is disabled or has left its group. */
  async principal(column: "key_hash" | "id", value: string): Promise<PrincipalRow | null> {
    return this.db.get<PrincipalRow>(
      `SELECT k.id AS key_id, k.key_prefix, k.project, k.group_id, u.id AS user_id, u.tier,
              m.cost_multiplier_micros, g.rpm_ceiling, g.enforce_model_allowlist, g.member_budget_nano_usd,
              k.capture_until, ${LIMITS.map((column) => `k.${column}`).join(", ")}
       FROM api_keys k JOIN users u ON u.id = k.user_id
       LEFT JOIN group_members m ON m.group_id = k.group_id AND m.user_id = k.user_id AND m.is_active
       LEFT JOIN user_groups g ON g.id = m.group_id
       WHERE k.${column} = $1 AND k.active AND u.disabled_at IS NULL AND (k.group_id IS NULL OR g.id IS NOT NULL)`,
      [value],
    );
  }
}

export interface PrincipalRow
  extends LimitRow,
    Pick<KeyRow, "key_prefix" | "project" | "group_id" | "capture_until"> {
  key_id: string;
  user_id: string;
  tier: string;
  cost_multiplier_micros: number | null;
  rpm_ceiling: number | null;
  enforce_model_allowlist: boolean | null;
  member_budget_nano_usd: number | null;
}
