import type { z } from "zod";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import {
  countRows,
  insertAll,
  insertRow,
  type Queryable,
  selectIn,
  type Transaction,
  updateRows,
  upsertRow,
} from "../../storage/contract.ts";
import type { CodeBatch, OpenInvitation } from "./methods.ts";

export type Role = "admin" | "member";
export type Rule = "allow" | "deny";
interface ModelRow {
  group_id: string;
  rule: Rule;
  model_id: string;
}

export interface GroupRow {
  id: string;
  name: string;
  description: string;
  owner_id: string | null;
  enforce_model_allowlist: boolean;
  rpm_ceiling: number | null;
  /** Monthly refill level of the pool, and the UTC month of the last refill. */
  monthly_refill: number | null;
  refilled_month: string | null;
  /** What each member may spend of the pool in a UTC month. */
  member_budget_nano_usd: number | null;
  created_at: string;
}

export interface SeenGroup extends GroupRow {
  my_role: Role | null;
  member_count: number;
  /** Points in the pool. */
  balance: number;
}

export interface MemberRow {
  group_id: string;
  user_id: string;
  role: Role;
  cost_multiplier_micros: number;
  is_active: boolean;
  created_at: string;
}

/** A new member, with multiplier 1. */
export const newMember = (group_id: string, user_id: string, created_at: string): MemberRow => ({
  ...{ group_id, user_id, created_at },
  role: "member",
  cost_multiplier_micros: MULTIPLIER_ONE,
  is_active: true,
});

export interface NamedMember extends MemberRow {
  email: string;
  name: string;
  is_owner: boolean;
}

export interface InvitationRow {
  id: string;
  group_id: string;
  role: Role;
  email: string | null;
  max_uses: number;
  uses: number;
  created_by: string;
  created_at: string;
  expires_at: string;
}

const SEEN = `SELECT g.id, g.name, g.description, g.owner_id, g.enforce_model_allowlist, g.rpm_ceiling,
    g.monthly_refill, g.refilled_month, g.member_budget_nano_usd, g.created_at,
    (SELECT m.role FROM group_members m WHERE m.group_id = g.id AND m.user_id = $1 AND m.is_active) AS my_role,
    (SELECT COUNT(*) FROM group_members c WHERE c.group_id = g.id AND c.is_active) AS member_count,
    COALESCE((SELECT a.balance FROM ledger_accounts a WHERE a.id = 'group:' || CAST(g.id AS TEXT)), 0) AS balance
  FROM user_groups g`;
const LISTED_MAX = 1_000;
/** Groups that a provider's claim puts one person into. */
const PROVIDED_MAX = 200;
const MEMBER_COLUMNS = "group_id, user_id, role, cost_multiplier_micros, is_active, created_at";
const INVITATION_COLUMNS = "id, group_id, role, email, max_uses, uses, created_by, created_at, expires_at";

export const store = {
  group(on: Queryable, groupId: string, userId: string | null): Promise<SeenGroup | null> {
    return on.get(`${SEEN} WHERE g.id = $2`, [userId, groupId]);
  },

  /** Groups as this person sees them: all, or only those with their membership. */
  groups(on: Queryable, userId: string | null, isEveryones: boolean): Promise<SeenGroup[]> {
    const own =
      "WHERE EXISTS (SELECT 1 FROM group_members x WHERE x.group_id = g.id AND x.user_id = $1 AND x.is_active)";
    const sql = `${SEEN} ${isEveryones ? "" : own} ORDER BY g.created_at DESC, g.id LIMIT ${LISTED_MAX}`;
    return on.all(sql, [userId]);
  },

  countOwned(on: Queryable, userId: string): Promise<number> {
    return countRows(on, "user_groups WHERE owner_id = $1", [userId]);
  },

  async insertGroup(tx: Transaction, group: Partial<GroupRow>): Promise<void> {
    await insertRow(tx, "user_groups", group);
  },

  async updateGroup(tx: Transaction, id: string, patch: Partial<GroupRow>): Promise<void> {
    await updateRows(tx, "user_groups", { id }, patch);
  },

  async groupsToRefill(on: Queryable, month: string, limit: number): Promise<string[]> {
    const rows = await on.all<{ id: string }>(
      `SELECT id FROM user_groups
       WHERE monthly_refill IS NOT NULL AND COALESCE(refilled_month, '') < $1 ORDER BY id LIMIT $2`,
      [month, limit],
    );
    return rows.map(({ id }) => id);
  },

  /** Active members' keys become personal; keys that no longer worked stay so. */
  async detachKeys(tx: Transaction, groupId: string, now: string): Promise<void> {
    await tx.run(
      `UPDATE api_keys SET active = FALSE, revoked_at = COALESCE(revoked_at, $2)
       WHERE group_id = $1 AND user_id NOT IN
         (SELECT user_id FROM group_members WHERE group_id = $1 AND is_active)`,
      [groupId, now],
    );
    await tx.run("UPDATE api_keys SET group_id = NULL WHERE group_id = $1", [groupId]);
  },

  /** Members, invitations and model lists go with it. */
  async deleteGroup(tx: Transaction, groupId: string): Promise<void> {
    await tx.run("DELETE FROM user_groups WHERE id = $1", [groupId]);
  },

  member(on: Queryable, groupId: string, userId: string): Promise<MemberRow | null> {
    const sql = `SELECT ${MEMBER_COLUMNS} FROM group_members WHERE group_id = $1 AND user_id = $2`;
    return on.get(sql, [groupId, userId]);
  },

  async members(on: Queryable, { id, owner_id }: GroupRow, includeInactive = false): Promise<NamedMember[]> {
    const rows = await on.all<Omit<NamedMember, "is_owner">>(
      `SELECT m.group_id, m.user_id, m.role, m.cost_multiplier_micros, m.is_active, m.created_at, u.email, u.name
       FROM group_members m JOIN users u ON u.id = m.user_id
       WHERE m.group_id = $1 ${includeInactive ? "" : "AND m.is_active"} ORDER BY m.created_at, u.email`,
      [id],
    );
    return rows.map((member) => ({ ...member, is_owner: member.user_id === owner_id }));
  },

  countMembers(on: Queryable, groupId: string): Promise<number> {
    return countRows(on, "group_members WHERE group_id = $1", [groupId]);
  },

  async saveMember(tx: Transaction, member: MemberRow): Promise<void> {
    await upsertRow(tx, "group_members", member, { key: "group_id, user_id", kept: ["created_at"] });
  },

  /** Groups with these names that belong to the platform or to one of its administrators. */
  async officialGroups(on: Queryable, names: readonly string[]): Promise<string[]> {
    const sql = (list: string) =>
      `SELECT g.id FROM user_groups g LEFT JOIN users u ON u.id = g.owner_id
       WHERE g.name IN ${list} AND (g.owner_id IS NULL OR u.is_admin) ORDER BY g.id LIMIT ${PROVIDED_MAX}`;
    const rows = await selectIn<{ id: string }>(on, sql, names);
    return rows.slice(0, PROVIDED_MAX).map(({ id }) => id);
  },

  membershipsOf(on: Queryable, userId: string): Promise<{ group_id: string; from_provider: boolean }[]> {
    return on.all("SELECT group_id, from_provider FROM group_members WHERE user_id = $1", [userId]);
  },

  /** A member because the sign-in provider says so. */
  async insertProvided(tx: Transaction, member: MemberRow): Promise<void> {
    const row = { ...member, from_provider: true };
    await insertRow(tx, "group_members", row, "ON CONFLICT (group_id, user_id) DO NOTHING");
  },

  /** The owner always stays. */
  async removeProvided(tx: Transaction, groupId: string, userId: string): Promise<void> {
    await tx.run(
      `DELETE FROM group_members WHERE group_id = $1 AND user_id = $2 AND from_provider
         AND NOT EXISTS (SELECT 1 FROM user_groups g WHERE g.id = $1 AND g.owner_id = $2)`,
      [groupId, userId],
    );
  },

  /** Also ends invitations that were made for this person alone. */
  async removeMember(tx: Transaction, groupId: string, user: { id: string; email: string }): Promise<void> {
    await tx.run("DELETE FROM group_members WHERE group_id = $1 AND user_id = $2", [groupId, user.id]);
    await tx.run("DELETE FROM group_invitations WHERE group_id = $1 AND email = $2", [groupId, user.email]);
  },

  /** Deletes the group's expired invitations and counts the others. */
  async sweepInvitations(tx: Transaction, groupId: string, now: string): Promise<number> {
    await tx.run("DELETE FROM group_invitations WHERE group_id = $1 AND expires_at <= $2", [groupId, now]);
    return countRows(tx, "group_invitations WHERE group_id = $1 AND uses < max_uses", [groupId]);
  },

  async insertInvitation(tx: Transaction, invitation: InvitationRow, tokenHash: string): Promise<void> {
    await insertRow(tx, "group_invitations", { ...invitation, token_hash: tokenHash });
  },

  invitation(on: Queryable, tokenHash: string): Promise<InvitationRow | null> {
    const sql = `SELECT ${INVITATION_COLUMNS} FROM group_invitations WHERE token_hash = $1`;
    return on.get<InvitationRow>(sql, [tokenHash]);
  },

  openInvitations(on: Queryable, groupId: string, now: string): Promise<z.output<typeof OpenInvitation>[]> {
    return on.all(
      `SELECT i.id, i.role, i.email, i.max_uses, i.uses, i.created_at, i.expires_at,
         COALESCE((SELECT u.name FROM users u WHERE u.id = i.created_by), '') AS created_by
       FROM group_invitations i
       WHERE i.group_id = $1 AND i.expires_at > $2 AND i.uses < i.max_uses ORDER BY i.created_at DESC, i.id`,
      [groupId, now],
    );
  },

  async removeInvitation(tx: Transaction, groupId: string, id: string): Promise<boolean> {
    return (await tx.run("DELETE FROM group_invitations WHERE group_id = $1 AND id = $2", [groupId, id])) > 0;
  },

  /** Counts one use; false if none was left or it has expired. */
  async useInvitation(tx: Transaction, id: string, now: string): Promise<boolean> {
    const sql =
      "UPDATE group_invitations SET uses = uses + 1 WHERE id = $1 AND uses < max_uses AND expires_at > $2";
    const used = await tx.run(sql, [id, now]);
    return used > 0;
  },

  codeBatches(on: Queryable): Promise<z.output<typeof CodeBatch>[]> {
    return on.all(
      `SELECT c.batch_id AS id, c.points, c.note, COUNT(*) AS codes, COUNT(c.redeemed_at) AS redeemed,
         u.email AS created_by, c.created_at, c.expires_at
       FROM redemption_codes c JOIN users u ON u.id = c.created_by
       GROUP BY c.batch_id, c.points, c.note, u.email, c.created_at, c.expires_at
       ORDER BY c.created_at DESC, c.batch_id`,
    );
  },

  async revokeCodes(on: Queryable, batchId: string): Promise<boolean> {
    const sql = "DELETE FROM redemption_codes WHERE batch_id = $1 AND redeemed_at IS NULL";
    return (await on.run(sql, [batchId])) > 0;
  },

  async codeMaker(tx: Transaction, hash: string): Promise<string | null> {
    const sql = "SELECT created_by FROM redemption_codes WHERE code_hash = $1";
    return (await tx.get<{ created_by: string }>(sql, [hash]))?.created_by ?? null;
  },

  /** Null if it cannot be redeemed. Of several concurrent attempts one succeeds. */
  redeemCode(tx: Transaction, { hash, userId, now }: { hash: string; userId: string; now: string }) {
    return tx.get<{ points: number; note: string | null }>(
      `UPDATE redemption_codes SET redeemed_by = $2, redeemed_at = $3
       WHERE code_hash = $1 AND redeemed_at IS NULL AND expires_at > $3 RETURNING points, note`,
      [hash, userId, now],
    );
  },

  models(on: Queryable, groupId: string): Promise<{ rule: Rule; model_id: string }[]> {
    return on.all("SELECT rule, model_id FROM group_models WHERE group_id = $1 ORDER BY model_id", [groupId]);
  },

  /** The caller has already filtered out existing ones. */
  async addModels(tx: Transaction, rows: readonly ModelRow[]): Promise<void> {
    await insertAll(tx, "group_models", rows);
  },

  async removeModels(tx: Transaction, rows: readonly ModelRow[]): Promise<void> {
    const sql = "DELETE FROM group_models WHERE group_id = $1 AND rule = $2 AND model_id = $3";
    for (const { group_id, rule, model_id } of rows) await tx.run(sql, [group_id, rule, model_id]);
  },
};
