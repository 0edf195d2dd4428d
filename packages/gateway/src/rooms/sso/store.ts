import { type Database, insertRow, type Queryable } from "../../storage/contract.ts";

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

export class IdentityStore {
  constructor(readonly db: Database) {}

  identity(on: Queryable, issuer: string, subject: string): Promise<IdentityRow | null> {
    return on.get<IdentityRow>(`SELECT ${COLUMNS} FROM identities WHERE issuer = $1 AND subject = $2`, [
      issuer,
      subject,
    ]);
  }

  async insert(on: Queryable, row: IdentityRow): Promise<void> {
    await insertRow(on, "identities", row);
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

  use(id: string, expires_at: string): Promise<boolean> {
    return insertRow(this.db, "used_sign_ins", { id, expires_at }, "ON CONFLICT (id) DO NOTHING");
  }
}
