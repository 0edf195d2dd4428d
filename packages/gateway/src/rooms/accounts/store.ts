import type { z } from "zod";
import type { SignedIn } from "../../kernel/context.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import {
  countRows,
  type Database,
  insertAll,
  insertRow,
  type Queryable,
  type Transaction,
  updateRows,
} from "../../storage/contract.ts";
import type { PendingLink, Person, SignedInSession } from "./methods.ts";

export interface UserRow {
  id: string;
  email: string;
  name: string;
  password_hash: string;
  is_admin: boolean;
  disabled_at: string | null;
  /** The sign-in provider or an administrator says that the address is the owner's. */
  email_verified: boolean;
}

interface RefreshTokenRow {
  token_hash: string;
  family_id: string;
  user_id: string;
  ip: string;
  user_agent: string | null;
  created_at: string;
  expires_at: string;
}
type TokenOwner = Pick<RefreshTokenRow, "user_id" | "family_id">;

export type SessionRow = z.output<typeof SignedInSession>;

export interface LinkRow {
  id: string;
  /** Null: the link makes an account. */
  user_id: string | null;
  /** Null: for any email address. */
  email: string | null;
  tier: string | null;
  is_admin: boolean;
  /** The new account is a member of it. */
  group_id: string | null;
  note: string | null;
  created_by: string;
  created_at: string;
  expires_at: string;
}

const toUser = <Row extends Pick<UserRow, "is_admin" | "email_verified">>(row: Row): Row => ({
  ...row,
  is_admin: Boolean(row.is_admin),
  email_verified: Boolean(row.email_verified),
});

const USER_COLUMNS = "id, email, name, password_hash, is_admin, disabled_at, email_verified";

const LINK_COLUMNS = "id, user_id, email, tier, is_admin, group_id, note, created_by, created_at, expires_at";
const SESSIONS_LISTED_MAX = 200;

/** SQL of the accounts: users, their sessions, and the links that let someone in once. */
export class AccountStore {
  constructor(readonly db: Database) {}

  /** Runs `work` under the registration lock: of two at once, only one is `first`. */
  registering<T>(work: (tx: Transaction, first: boolean) => Promise<T>): Promise<T> {
    return this.db.transaction(async (tx) => {
      await tx.lock("registration");
      return work(tx, !(await this.anyUser(tx)));
    });
  }

  async anyUser(on: Queryable = this.db): Promise<boolean> {
    return (await on.get("SELECT id FROM users LIMIT 1")) !== null;
  }

  async insertUser(on: Queryable, user: UserRow & { tier: string; created_at: string }): Promise<boolean> {
    return insertRow(on, "users", user, "ON CONFLICT (email) DO NOTHING");
  }

  async userByEmail(email: string, on: Queryable = this.db): Promise<UserRow | null> {
    const row = await on.get<UserRow>(`SELECT ${USER_COLUMNS} FROM users WHERE email = $1`, [email]);
    return row && toUser(row);
  }

  async userById(id: string, on: Queryable = this.db): Promise<UserRow | null> {
    const row = await on.get<UserRow>(`SELECT ${USER_COLUMNS} FROM users WHERE id = $1`, [id]);
    return row && toUser(row);
  }

  /** What someone may do in the service and in a group; null for an account that is disabled or does not exist. */
  async maker(on: Queryable, userId: string, groupId: string | null) {
    await this.#keepUnchanged(on, userId);
    return on.get<{ is_admin: unknown; manages_group: unknown }>(
      `SELECT u.is_admin,
              EXISTS (SELECT 1 FROM group_members m WHERE m.group_id = $2 AND m.user_id = u.id AND m.is_active
                        AND m.role = 'admin') AS manages_group
       FROM users u WHERE u.id = $1 AND u.disabled_at IS NULL`,
      [userId, groupId],
    );
  }

  async isSignedIn(tx: Transaction, { userId, sessionId }: SignedIn): Promise<boolean> {
    await this.#keepUnchanged(tx, userId);
    const sql = `users u WHERE u.id = $1 AND u.disabled_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM ended_sessions e WHERE e.family_id = $2)`;
    return (await countRows(tx, sql, [userId, sessionId ?? null])) > 0;
  }

  /** Keeps the account unchanged until the end of the transaction. SQLite has only one writer anyway. */
  async #keepUnchanged(on: Queryable, userId: string): Promise<void> {
    if (on.dialect === "postgres") await on.get("SELECT id FROM users WHERE id = $1 FOR SHARE", [userId]);
  }

  /** Removes the password, sessions, links and keys of an account, whose address is verified now. */
  async takeOver(tx: Transaction, userId: string, now: string): Promise<void> {
    await this.updateUser(tx, userId, { password_hash: "", email_verified: true });
    await this.endSessions(tx, { userId, now });
    await this.deleteLinksFor(tx, userId);
    await this.deleteLinksBy(tx, userId);
    await tx.run("DELETE FROM group_invitations WHERE created_by = $1", [userId]);
    const sql = "UPDATE api_keys SET active = FALSE, revoked_at = $2 WHERE user_id = $1 AND active";
    await tx.run(sql, [userId, now]);
  }

  async insertRefreshToken(on: Queryable, token: RefreshTokenRow): Promise<void> {
    const sql = "DELETE FROM refresh_tokens WHERE user_id = $1 AND expires_at < $2";
    await on.run(sql, [token.user_id, token.created_at]);
    await insertRow(on, "refresh_tokens", token);
  }

  /** Marks the token as used and returns it; null when it is unknown, expired or was used before. */
  useRefreshToken(on: Queryable, tokenHash: string, now: string): Promise<TokenOwner | null> {
    return on.get(
      `UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2
         AND NOT EXISTS (SELECT 1 FROM ended_sessions e WHERE e.family_id = refresh_tokens.family_id)
       RETURNING user_id, family_id`,
      [tokenHash, now],
    );
  }

  /** Whose session a refresh token, of any state, belongs to. */
  sessionOfToken(tokenHash: string): Promise<(TokenOwner & { used_at: string | null }) | null> {
    const sql = "SELECT user_id, family_id, used_at FROM refresh_tokens WHERE token_hash = $1";
    return this.db.get(sql, [tokenHash]);
  }

  /** Sessions that can still be renewed, the one used last first. */
  sessionsOf(userId: string, now: string): Promise<SessionRow[]> {
    return this.db.all<SessionRow>(
      `SELECT t.family_id AS id, t.ip, t.user_agent, t.created_at AS last_used_at,
              (SELECT MIN(created_at) FROM refresh_tokens f WHERE f.family_id = t.family_id) AS created_at
       FROM refresh_tokens t WHERE t.user_id = $1 AND t.used_at IS NULL AND t.expires_at > $2
       ORDER BY t.created_at DESC, t.family_id LIMIT ${SESSIONS_LISTED_MAX}`,
      [userId, now],
    );
  }

  /** Ends the user's sessions that `which` names, or all but the one it excepts; returns how many. */
  async endSessions(
    tx: Transaction,
    { userId, only, except, now }: { userId: string; only?: string; except?: string; now: string },
  ): Promise<number> {
    const tokens = await tx.all<{ family_id: string }>(
      `DELETE FROM refresh_tokens WHERE user_id = $1 AND family_id = COALESCE($2, family_id)
         AND family_id IS DISTINCT FROM $3 RETURNING family_id`,
      [userId, only ?? null, except ?? null],
    );
    const ended = new Set(tokens.map(({ family_id }) => family_id));
    const rows = Array.from(ended, (family_id) => ({ family_id, user_id: userId, ended_at: now }));
    await insertAll(tx, "ended_sessions", rows, "ON CONFLICT (family_id) DO NOTHING");
    return ended.size;
  }

  async endedSessions(userId: string, since: string): Promise<string[]> {
    const sql = "SELECT family_id FROM ended_sessions WHERE user_id = $1 AND ended_at > $2";
    const rows = await this.db.all<{ family_id: string }>(sql, [userId, since]);
    return rows.map(({ family_id }) => family_id);
  }

  /** Also removes tokens issued while their session was being ended, so that they cannot revive it. */
  deleteEndedSessions(before: string, rowsMax: number): Promise<number> {
    const oldest = "(SELECT family_id FROM ended_sessions WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)";
    return this.db.transaction(async (tx) => {
      await tx.run(`DELETE FROM refresh_tokens WHERE family_id IN ${oldest}`, [before, rowsMax]);
      return tx.run(`DELETE FROM ended_sessions WHERE family_id IN ${oldest}`, [before, rowsMax]);
    });
  }

  /** False when the password is no longer the one that was checked. */
  async replacePassword(on: Queryable, user: UserRow, passwordHash: string): Promise<boolean> {
    const { id, password_hash } = user;
    const changed = await updateRows(on, "users", { id, password_hash }, { password_hash: passwordHash });
    return changed > 0;
  }

  async updateUser(on: Queryable, id: string, changes: Partial<UserRow>): Promise<void> {
    await updateRows(on, "users", { id }, changes);
  }

  /** Accounts that can administer the service now. */
  countAdmins(on: Queryable): Promise<number> {
    return countRows(on, "users WHERE is_admin AND disabled_at IS NULL");
  }

  /** Users whose email, name or id has `search` in it, newest first, and how many there are in all. */
  async listUsers({ search, limit, offset }: { search: string; limit: number; offset: number }) {
    const pattern = `%${search.toLowerCase().replace(/[\\%_]/g, "\\$&")}%`;
    const where =
      "WHERE u.email LIKE $1 ESCAPE '\\' OR LOWER(u.name) LIKE $1 ESCAPE '\\' OR CAST(u.id AS TEXT) LIKE $1";
    const users = await this.db.all<z.output<typeof Person>>(
      `SELECT u.id, u.email, u.name, u.is_admin, u.tier, u.disabled_at IS NOT NULL AS disabled,
              u.email_verified, u.created_at,
              (SELECT MAX(r.created_at) FROM refresh_tokens r WHERE r.user_id = u.id) AS last_seen_at,
              (SELECT COUNT(*) FROM api_keys k WHERE k.user_id = u.id AND k.active) AS active_keys
       FROM users u ${where} ORDER BY u.created_at DESC, u.id LIMIT $2 OFFSET $3`,
      [pattern, limit, offset],
    );
    return {
      users: users.map((user) => ({ ...toUser(user), disabled: Boolean(user.disabled) })),
      total: await countRows(this.db, `users u ${where}`, [pattern]),
    };
  }

  async insertLink(on: Queryable, link: LinkRow, tokenHash: string): Promise<void> {
    await insertRow(on, "account_links", { ...link, token_hash: tokenHash });
  }

  countLinks(on: Queryable, now: string): Promise<number> {
    return countRows(on, "account_links WHERE expires_at > $1", [now]);
  }

  link(on: Queryable, tokenHash: string, now: string): Promise<LinkRow | null> {
    const sql = `SELECT ${LINK_COLUMNS} FROM account_links WHERE token_hash = $1 AND expires_at > $2`;
    return on.get<LinkRow>(sql, [tokenHash, now]);
  }

  async hasGroup(on: Queryable, groupId: string): Promise<boolean> {
    return (await countRows(on, "user_groups WHERE id = $1", [groupId])) > 0;
  }

  /** Makes the new account a member, if the group still exists. */
  async joinGroup(tx: Transaction, { groupId, userId }: { groupId: string; userId: string }): Promise<void> {
    await tx.run(
      `INSERT INTO group_members (group_id, user_id, role, cost_multiplier_micros, is_active, created_at)
       SELECT g.id, u.id, 'member', ${MULTIPLIER_ONE}, TRUE, u.created_at
       FROM user_groups g, users u WHERE g.id = $1 AND u.id = $2`,
      [groupId, userId],
    );
  }

  /** Deletes the link, so that only one caller can use it; false if someone was faster. */
  async takeLink(on: Queryable, id: string): Promise<boolean> {
    return (await on.run("DELETE FROM account_links WHERE id = $1", [id])) > 0;
  }

  async deleteLinksFor(on: Queryable, userId: string): Promise<void> {
    await on.run("DELETE FROM account_links WHERE user_id = $1", [userId]);
  }

  async deleteLinksBy(on: Queryable, makerId: string): Promise<void> {
    await on.run("DELETE FROM account_links WHERE created_by = $1", [makerId]);
    await on.run("DELETE FROM redemption_codes WHERE created_by = $1 AND redeemed_at IS NULL", [makerId]);
  }

  /** Groups with invitations made by this person. */
  async groupsInvitedTo(on: Queryable, makerId: string): Promise<string[]> {
    const sql = "SELECT DISTINCT group_id FROM group_invitations WHERE created_by = $1";
    const rows = await on.all<{ group_id: string }>(sql, [makerId]);
    return rows.map(({ group_id }) => group_id);
  }

  async deleteInvitationsBy(on: Queryable, makerId: string, groupId: string): Promise<void> {
    await on.run("DELETE FROM group_invitations WHERE created_by = $1 AND group_id = $2", [makerId, groupId]);
  }

  pendingLinks(now: string): Promise<z.output<typeof PendingLink>[]> {
    return this.db.all(
      `SELECT l.id, CASE WHEN l.user_id IS NULL THEN 'invitation' ELSE 'password' END AS kind,
         COALESCE(u.email, l.email) AS email, l.tier, l.is_admin, g.name AS group_name, l.note,
         c.name AS created_by, l.created_at, l.expires_at
       FROM account_links l JOIN users c ON c.id = l.created_by LEFT JOIN users u ON u.id = l.user_id
         LEFT JOIN user_groups g ON g.id = l.group_id
       WHERE l.expires_at > $1 ORDER BY l.created_at DESC, l.id`,
      [now],
    );
  }
}
