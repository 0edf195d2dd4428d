import type { z } from "zod";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import {
  countRows,
  type Database,
  insertRow,
  type Queryable,
  type Transaction,
} from "../../storage/contract.ts";
import type { SignedInSession } from "./schemas.ts";

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

export interface Maker {
  isAdmin: boolean;
  /** An admin of the group that was asked about. */
  managesGroup: boolean;
  sessionEnded: boolean;
}

interface RefreshTokenRow {
  token_hash: string;
  family_id: string;
  user_id: string;
  expires_at: string;
  used_at: string | null;
}

export type SessionRow = z.output<typeof SignedInSession>;

export interface ListedUser extends Omit<UserRow, "password_hash"> {
  tier: string;
  created_at: string;
  last_seen_at: string | null;
  active_keys: number;
}

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

export interface ListedLink extends LinkRow {
  group_name: string | null;
  user_email: string | null;
  creator_name: string;
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

  /** Null for an account that is disabled or does not exist. */
  async maker(
    on: Queryable,
    userId: string,
    { groupId = null, sessionId = null }: { groupId?: string | null; sessionId?: string | null },
  ): Promise<Maker | null> {
    await this.#keepUnchanged(on, userId);
    const row = await on.get<{ is_admin: boolean; manages: boolean; has_ended: boolean }>(
      `SELECT u.is_admin,
              EXISTS (SELECT 1 FROM group_members m WHERE m.group_id = $2 AND m.user_id = u.id AND m.is_active
                        AND m.role = 'admin') AS manages,
              EXISTS (SELECT 1 FROM ended_sessions e WHERE e.family_id = $3) AS has_ended
       FROM users u WHERE u.id = $1 AND u.disabled_at IS NULL`,
      [userId, groupId, sessionId],
    );
    return (
      row && {
        isAdmin: Boolean(row.is_admin),
        managesGroup: Boolean(row.manages),
        sessionEnded: Boolean(row.has_ended),
      }
    );
  }

  /** Until the end of the transaction the account keeps its rights and its password; SQLite runs one at a time. */
  async #keepUnchanged(on: Queryable, userId: string): Promise<void> {
    if (on.dialect === "postgres") await on.get("SELECT id FROM users WHERE id = $1 FOR SHARE", [userId]);
  }

  /** Ends everything by which someone could get into the account, or act in its name. The address is its owner's now. */
  async takeOver(tx: Transaction, userId: string, now: string): Promise<void> {
    await tx.run("UPDATE users SET password_hash = '', email_verified = TRUE WHERE id = $1", [userId]);
    await this.endSessions(tx, { userId, now });
    await this.deleteLinksFor(tx, userId);
    await this.deleteLinksBy(tx, userId);
    await tx.run("DELETE FROM group_invitations WHERE created_by = $1", [userId]);
    await tx.run("UPDATE api_keys SET active = FALSE, revoked_at = $2 WHERE user_id = $1 AND active", [
      userId,
      now,
    ]);
  }

  async insertRefreshToken(
    on: Queryable,
    token: Omit<RefreshTokenRow, "used_at"> & Pick<SessionRow, "ip" | "user_agent" | "created_at">,
  ): Promise<void> {
    await on.run("DELETE FROM refresh_tokens WHERE user_id = $1 AND expires_at < $2", [
      token.user_id,
      token.created_at,
    ]);
    await insertRow(on, "refresh_tokens", token);
  }

  /** Marks the token as used and returns it; null when it is unknown, expired or was used before. */
  async useRefreshToken(on: Queryable, tokenHash: string, now: string): Promise<RefreshTokenRow | null> {
    return on.get<RefreshTokenRow>(
      `UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2
         AND NOT EXISTS (SELECT 1 FROM ended_sessions e WHERE e.family_id = refresh_tokens.family_id)
       RETURNING token_hash, family_id, user_id, expires_at, used_at`,
      [tokenHash, now],
    );
  }

  /** Whose session a refresh token, of any state, belongs to. */
  sessionOfToken(
    tokenHash: string,
  ): Promise<Pick<RefreshTokenRow, "user_id" | "family_id" | "used_at"> | null> {
    return this.db.get("SELECT user_id, family_id, used_at FROM refresh_tokens WHERE token_hash = $1", [
      tokenHash,
    ]);
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
    const families = await tx.all<{ family_id: string }>(
      "SELECT DISTINCT family_id FROM refresh_tokens WHERE user_id = $1",
      [userId],
    );
    const ended = families
      .map(({ family_id }) => family_id)
      .filter((id) => id !== except && (only === undefined || id === only));
    for (const id of ended) {
      await tx.run("DELETE FROM refresh_tokens WHERE family_id = $1", [id]);
      const row = { family_id: id, user_id: userId, ended_at: now };
      await insertRow(tx, "ended_sessions", row, "ON CONFLICT (family_id) DO NOTHING");
    }
    return ended.length;
  }

  async endedSessions(userId: string, since: string): Promise<string[]> {
    const rows = await this.db.all<{ family_id: string }>(
      "SELECT family_id FROM ended_sessions WHERE user_id = $1 AND ended_at > $2",
      [userId, since],
    );
    return rows.map(({ family_id }) => family_id);
  }

  /** With them goes a token that was issued while its session was being ended: it must not come back to life. */
  deleteEndedSessions(before: string, rowsMax: number): Promise<number> {
    const oldest = "(SELECT family_id FROM ended_sessions WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)";
    return this.db.transaction(async (tx) => {
      await tx.run(`DELETE FROM refresh_tokens WHERE family_id IN ${oldest}`, [before, rowsMax]);
      return tx.run(`DELETE FROM ended_sessions WHERE family_id IN ${oldest}`, [before, rowsMax]);
    });
  }

  async setPassword(on: Queryable, userId: string, passwordHash: string): Promise<void> {
    await on.run("UPDATE users SET password_hash = $2 WHERE id = $1", [userId, passwordHash]);
  }

  /** False when the password is no longer the one that was checked. */
  async replacePassword(on: Queryable, user: UserRow, passwordHash: string): Promise<boolean> {
    const changed = await on.run("UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2", [
      user.id,
      user.password_hash,
      passwordHash,
    ]);
    return changed > 0;
  }

  async updateUser(
    on: Queryable,
    user: Pick<UserRow, "id" | "name" | "is_admin" | "disabled_at" | "email_verified">,
  ): Promise<void> {
    await on.run(
      "UPDATE users SET name = $2, is_admin = $3, disabled_at = $4, email_verified = $5 WHERE id = $1",
      [user.id, user.name, user.is_admin, user.disabled_at, user.email_verified],
    );
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
    const users = await this.db.all<ListedUser>(
      `SELECT u.id, u.email, u.name, u.is_admin, u.tier, u.disabled_at, u.email_verified, u.created_at,
              (SELECT MAX(r.created_at) FROM refresh_tokens r WHERE r.user_id = u.id) AS last_seen_at,
              (SELECT COUNT(*) FROM api_keys k WHERE k.user_id = u.id AND k.active) AS active_keys
       FROM users u ${where} ORDER BY u.created_at DESC, u.id LIMIT $2 OFFSET $3`,
      [pattern, limit, offset],
    );
    return { users: users.map(toUser), total: await countRows(this.db, `users u ${where}`, [pattern]) };
  }

  async insertLink(on: Queryable, link: LinkRow, tokenHash: string): Promise<void> {
    await insertRow(on, "account_links", { ...link, token_hash: tokenHash });
  }

  countLinks(on: Queryable, now: string): Promise<number> {
    return countRows(on, "account_links WHERE expires_at > $1", [now]);
  }

  link(on: Queryable, tokenHash: string, now: string): Promise<LinkRow | null> {
    return on.get<LinkRow>(
      `SELECT ${LINK_COLUMNS} FROM account_links WHERE token_hash = $1 AND expires_at > $2`,
      [tokenHash, now],
    );
  }

  async hasGroup(on: Queryable, groupId: string): Promise<boolean> {
    return (await countRows(on, "user_groups WHERE id = $1", [groupId])) > 0;
  }

  /** Makes the new account a member, if the group is still there. */
  async joinGroup(tx: Transaction, { groupId, userId }: { groupId: string; userId: string }): Promise<void> {
    await tx.run(
      `INSERT INTO group_members (group_id, user_id, role, cost_multiplier_micros, is_active, created_at)
       SELECT g.id, u.id, 'member', ${MULTIPLIER_ONE}, TRUE, u.created_at
       FROM user_groups g, users u WHERE g.id = $1 AND u.id = $2`,
      [groupId, userId],
    );
  }

  /** Takes the link away, so that only one can use it; false when someone was faster. */
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

  /** Groups that this person has made invitations to. */
  async groupsInvitedTo(on: Queryable, makerId: string): Promise<string[]> {
    const rows = await on.all<{ group_id: string }>(
      "SELECT DISTINCT group_id FROM group_invitations WHERE created_by = $1",
      [makerId],
    );
    return rows.map(({ group_id }) => group_id);
  }

  async deleteInvitationsBy(on: Queryable, makerId: string, groupId: string): Promise<void> {
    await on.run("DELETE FROM group_invitations WHERE created_by = $1 AND group_id = $2", [makerId, groupId]);
  }

  pendingLinks(now: string): Promise<ListedLink[]> {
    return this.db.all<ListedLink>(
      `SELECT ${LINK_COLUMNS.replace(/\w+/g, "l.$&")}, g.name AS group_name, u.email AS user_email, c.name AS creator_name
       FROM account_links l JOIN users c ON c.id = l.created_by LEFT JOIN users u ON u.id = l.user_id
         LEFT JOIN user_groups g ON g.id = l.group_id
       WHERE l.expires_at > $1 ORDER BY l.created_at DESC, l.id`,
      [now],
    );
  }
}
