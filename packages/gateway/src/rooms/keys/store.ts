import type { Database, Queryable } from "../../storage/contract.ts";

export interface KeyRow {
  id: string;
  name: string;
  project: string;
  key_prefix: string;
  group_id: string | null;
  active: boolean;
  created_at: string;
  revoked_at: string | null;
}

const toKey = (row: KeyRow): KeyRow => ({ ...row, active: Boolean(row.active) });
/** Twice as many as one account may have active. */
const LISTED_MAX = 1_000;
const COLUMNS = "id, name, project, key_prefix, group_id, active, created_at, revoked_at";

/** SQL of the API keys. */
export class KeyStore {
  constructor(readonly db: Database) {}

  async insert(on: Queryable, key: KeyRow & { user_id: string; key_hash: string }): Promise<void> {
    await on.run(
      `INSERT INTO api_keys (id, user_id, group_id, name, project, key_hash, key_prefix, active, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
      [
        key.id,
        key.user_id,
        key.group_id,
        key.name,
        key.project,
        key.key_hash,
        key.key_prefix,
        key.active,
        key.created_at,
      ],
    );
  }

  /** Newest first. Of more than `LISTED_MAX`, the oldest revoked ones are left out. */
  async listOf(userId: string): Promise<KeyRow[]> {
    const rows = await this.db.all<KeyRow>(
      `SELECT ${COLUMNS} FROM api_keys WHERE id IN
         (SELECT id FROM api_keys WHERE user_id = $1 ORDER BY active DESC, created_at DESC, id LIMIT ${LISTED_MAX})
       ORDER BY created_at DESC, id`,
      [userId],
    );
    return rows.map(toKey);
  }

  async countActive(userId: string): Promise<number> {
    const row = await this.db.get<{ n: number }>(
      "SELECT COUNT(*) AS n FROM api_keys WHERE user_id = $1 AND active",
      [userId],
    );
    return row?.n ?? 0;
  }

  /** True when the key is the user's; revoking twice keeps the first time. */
  async revoke(keyId: string, userId: string, now: string): Promise<boolean> {
    const changed = await this.db.run(
      "UPDATE api_keys SET active = FALSE, revoked_at = COALESCE(revoked_at, $3) WHERE id = $1 AND user_id = $2",
      [keyId, userId, now],
    );
    return changed > 0;
  }

  async isInForce(keyId: string): Promise<boolean> {
    const row = await this.db.get(
      `SELECT 1 AS found FROM api_keys k JOIN users u ON u.id = k.user_id
       LEFT JOIN group_members m ON m.group_id = k.group_id AND m.user_id = k.user_id AND m.is_active
       WHERE k.id = $1 AND k.active AND u.disabled_at IS NULL AND (k.group_id IS NULL OR m.group_id IS NOT NULL)`,
      [keyId],
    );
    return row !== null;
  }

  /**
   * What a request with this key may do, in one look-up; null when the key is unknown or revoked, its user is
   * disabled, or it belongs to a group whose active member its user no longer is.
   */
  async principal(keyHash: string): Promise<PrincipalRow | null> {
    return this.db.get<PrincipalRow>(
      `SELECT k.id AS key_id, k.key_prefix, k.project, k.group_id, u.id AS user_id, u.tier,
              m.cost_multiplier_micros, g.rpm_ceiling, g.enforce_model_allowlist
       FROM api_keys k JOIN users u ON u.id = k.user_id
       LEFT JOIN group_members m ON m.group_id = k.group_id AND m.user_id = k.user_id AND m.is_active
       LEFT JOIN user_groups g ON g.id = m.group_id
       WHERE k.key_hash = $1 AND k.active AND u.disabled_at IS NULL AND (k.group_id IS NULL OR g.id IS NOT NULL)`,
      [keyHash],
    );
  }
}

export interface PrincipalRow {
  key_id: string;
  key_prefix: string;
  project: string;
  group_id: string | null;
  user_id: string;
  tier: string;
  /** Null unless the key is a group's. */
  cost_multiplier_micros: number | null;
  rpm_ceiling: number | null;
  enforce_model_allowlist: boolean | null;
}
