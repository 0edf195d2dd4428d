import type { Database, Queryable } from "../../storage/contract.ts";

export interface IdentityRow {
  id: string;
  issuer: string;
  subject: string;
  user_id: string;
  /** As the provider gave it when the identity was last used. */
  email: string | null;
  created_at: string;
  last_used_at: string;
}

const COLUMNS = "id, issuer, subject, user_id, email, created_at, last_used_at";

/** SQL of identities: who someone is at the provider. */
export class IdentityStore {
  constructor(readonly db: Database) {}

  identity(on: Queryable, issuer: string, subject: string): Promise<IdentityRow | null> {
    return on.get<IdentityRow>(`SELECT ${COLUMNS} FROM identities WHERE issuer = $1 AND subject = $2`, [
      issuer,
      subject,
    ]);
  }

  async insert(on: Queryable, row: IdentityRow): Promise<void> {
    await on.run(`INSERT INTO identities (${COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)`, [
      row.id,
      row.issuer,
      row.subject,
      row.user_id,
      row.email,
      row.created_at,
      row.last_used_at,
    ]);
  }

  async touch(
    on: Queryable,
    { id, email, now }: { id: string; email: string | null; now: string },
  ): Promise<void> {
    await on.run("UPDATE identities SET last_used_at = $2, email = $3 WHERE id = $1", [id, now, email]);
  }

  of(on: Queryable, userId: string): Promise<IdentityRow[]> {
    return on.all<IdentityRow>(
      `SELECT ${COLUMNS} FROM identities WHERE user_id = $1 ORDER BY created_at, id`,
      [userId],
    );
  }

  async remove(on: Queryable, id: string): Promise<void> {
    await on.run("DELETE FROM identities WHERE id = $1", [id]);
  }

  /** False when the attempt was used before. */
  async use(attemptId: string, expiresAt: string): Promise<boolean> {
    const inserted = await this.db.run(
      "INSERT INTO used_sign_ins (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
      [attemptId, expiresAt],
    );
    return inserted > 0;
  }

  deleteUsed(before: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM used_sign_ins WHERE id IN
         (SELECT id FROM used_sign_ins WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`,
      [before, rowsMax],
    );
  }
}
