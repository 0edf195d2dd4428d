import { type Database, insertRow, type Queryable, updateRows } from "../../storage/contract.ts";

export interface IdentityRow {
  id: string;
  issuer: string;
  subject: string;
  user_id: string;
  /** The provider's value at the last use of the identity. */
  email: string | null;
  created_at: string;
  last_used_at: string;
}

const COLUMNS = "id, issuer, subject, user_id, email, created_at, last_used_at";

export class IdentityStore {
  constructor(readonly db: Database) {}

  identity(on: Queryable, issuer: string, subject: string): Promise<IdentityRow | null> {
    const sql = `SELECT ${COLUMNS} FROM identities WHERE issuer = $1 AND subject = $2`;
    return on.get<IdentityRow>(sql, [issuer, subject]);
  }

  async insert(on: Queryable, row: IdentityRow): Promise<void> {
    await insertRow(on, "identities", row);
  }

  async touch(on: Queryable, id: string, used: Pick<IdentityRow, "email" | "last_used_at">): Promise<void> {
    await updateRows(on, "identities", { id }, used);
  }

  of(on: Queryable, userId: string): Promise<IdentityRow[]> {
    const sql = `SELECT ${COLUMNS} FROM identities WHERE user_id = $1 ORDER BY created_at, id`;
    return on.all<IdentityRow>(sql, [userId]);
  }

  async remove(on: Queryable, id: string): Promise<void> {
    await on.run("DELETE FROM identities WHERE id = $1", [id]);
  }

  use(id: string, expires_at: string): Promise<boolean> {
    return insertRow(this.db, "used_sign_ins", { id, expires_at }, "ON CONFLICT (id) DO NOTHING");
  }
}
