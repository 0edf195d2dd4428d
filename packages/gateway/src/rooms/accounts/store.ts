import {
  type Database,
  isUniqueViolation,
  type Queryable,
  type Transaction,
} from "../../storage/contract.ts";

export interface UserRow {
  id: string;
  email: string;
  name: string;
  password_hash: string;
  is_admin: boolean;
}

interface RefreshTokenRow {
  token_hash: string;
  family_id: string;
  user_id: string;
  expires_at: string;
  used_at: string | null;
}

const toUser = (row: UserRow): UserRow => ({ ...row, is_admin: Boolean(row.is_admin) });

const USER_COLUMNS = "id, email, name, password_hash, is_admin";

/** SQL of the accounts: users and their refresh tokens. */
export class AccountStore {
  constructor(readonly db: Database) {}

  /** Registration decides "is this the first user?" under this lock, so that two at once get one admin. */
  registering<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.db.transaction(async (tx) => {
      await tx.lock("registration");
      return work(tx);
    });
  }

  async anyUser(on: Queryable = this.db): Promise<boolean> {
    return (await on.get("SELECT id FROM users LIMIT 1")) !== null;
  }

  /** False when the email is taken. */
  async insertUser(on: Queryable, user: UserRow & { created_at: string }): Promise<boolean> {
    const taken = await on.get("SELECT id FROM users WHERE email = $1", [user.email]);
    if (taken) return false;
    try {
      await on.run(
        "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
        [user.id, user.email, user.name, user.password_hash, user.is_admin, user.created_at],
      );
      return true;
    } catch (error) {
      if (isUniqueViolation(error)) return false;
      throw error;
    }
  }

  async userByEmail(email: string): Promise<UserRow | null> {
    const row = await this.db.get<UserRow>(`SELECT ${USER_COLUMNS} FROM users WHERE email = $1`, [email]);
    return row && toUser(row);
  }

  async userById(id: string): Promise<UserRow | null> {
    const row = await this.db.get<UserRow>(`SELECT ${USER_COLUMNS} FROM users WHERE id = $1`, [id]);
    return row && toUser(row);
  }

  async insertRefreshToken(
    on: Queryable,
    token: Omit<RefreshTokenRow, "used_at"> & { created_at: string },
  ): Promise<void> {
    await on.run("DELETE FROM refresh_tokens WHERE user_id = $1 AND expires_at < $2", [
      token.user_id,
      token.created_at,
    ]);
    await on.run(
      "INSERT INTO refresh_tokens (token_hash, family_id, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)",
      [token.token_hash, token.family_id, token.user_id, token.created_at, token.expires_at],
    );
  }

  /** Marks the token as used and returns it; null when it is unknown, expired or was used before. */
  async useRefreshToken(on: Queryable, tokenHash: string, now: string): Promise<RefreshTokenRow | null> {
    return on.get<RefreshTokenRow>(
      `UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2
       RETURNING token_hash, family_id, user_id, expires_at, used_at`,
      [tokenHash, now],
    );
  }

  /** Ends every token that descends from the same login; called when a used token comes back. */
  async revokeFamilyOf(tokenHash: string): Promise<number> {
    return this.db.run(
      "DELETE FROM refresh_tokens WHERE family_id IN (SELECT family_id FROM refresh_tokens WHERE token_hash = $1 AND used_at IS NOT NULL)",
      [tokenHash],
    );
  }

  deleteExpiredTokens(now: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM refresh_tokens WHERE token_hash IN
         (SELECT token_hash FROM refresh_tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`,
      [now, rowsMax],
    );
  }
}
