import type { z } from "zod";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import { countRows, insertAll, insertRow, type Queryable, type Transaction } from "../../storage/contract.ts";
import type { CodeBatch } from "./code-methods.ts";

export type Role = "admin" | "member";
export type Rule = "allow" | "deny";

export interface GroupRow {
  id: string;
  name: string;
  description: string;
  owner_id: string | null;
  enforce_model_allowlist: boolean;
  rpm_ceiling: number | null;
  /** Points that the pool is filled up to each UTC month, and the month in which it last was. */
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
/** Groups that a provider's claim puts one person into. */
const PROVIDED_MAX = 200;
const MEMBER_COLUMNS = "group_id, user_id, role, cost_multiplier_micros, is_active, created_at";
const INVITATION_COLUMNS = "id, group_id, role, email, max_uses, uses, created_by, created_at, expires_at";

export const store = {
  group(on: Queryable, groupId: string, userId: string | null): Promise<SeenGroup | null> {
    return on.get(`${SEEN} WHERE g.id = $2`, [userId, groupId]);
  },

  /** All groups as this person sees them, or only those that they are a member of. */
  groups(
    on: Queryable,
    userId: string | null,
    { isEveryones, limit }: { isEveryones: boolean; limit: number },
  ): Promise<SeenGroup[]> {
    const own =
      "WHERE EXISTS (SELECT 1 FROM group_members x WHERE x.group_id = g.id AND x.user_id = $1 AND x.is_active)";
    return on.all(`${SEEN} ${isEveryones ? "" : own} ORDER BY g.created_at DESC, g.id LIMIT $2`, [
      userId,
      limit,
    ]);
  },

  countOwned(on: Queryable, userId: string): Promise<number> {
    return countRows(on, "user_groups WHERE owner_id = $1", [userId]);
  },

  insertGroup(tx: Transaction, group: GroupRow): Promise<boolean> {
    return insertRow(tx, "user_groups", group, "ON CONFLICT (id) DO NOTHING");
  },

  async updateGroup(tx: Transaction, group: GroupRow): Promise<void> {
    await tx.run(
      `UPDATE user_groups SET name = $2, description = $3, enforce_model_allowlist = $4, rpm_ceiling = $5,
         monthly_refill = $6, member_budget_nano_usd = $7 WHERE id = $1`,
      [
        group.id,
        group.name,
        group.description,
        group.enforce_model_allowlist,
        group.rpm_ceiling,
        group.monthly_refill,
        group.member_budget_nano_usd,
      ],
    );
  },

  async groupsToRefill(on: Queryable, month: string, limit: number): Promise<string[]> {
    const rows = await on.all<{ id: string }>(
      `SELECT id FROM user_groups
       WHERE monthly_refill IS NOT NULL AND COALESCE(refilled_month, '') < $1 ORDER BY id LIMIT $2`,
      [month, limit],
    );
    return rows.map(({ id }) => id);
  },

  async setRefilled(tx: Transaction, groupId: string, month: string): Promise<void> {
    await tx.run("UPDATE user_groups SET refilled_month = $2 WHERE id = $1", [groupId, month]);
  },

  /** Active members' keys become personal ones; keys that were dead by then stay dead. */
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
    return on.get(`SELECT ${MEMBER_COLUMNS} FROM group_members WHERE group_id = $1 AND user_id = $2`, [
      groupId,
      userId,
    ]);
  },

  async members(
    on: Queryable,
    { id, owner_id }: GroupRow,
    { include_inactive }: { include_inactive: boolean },
  ): Promise<NamedMember[]> {
    const rows = await on.all<Omit<NamedMember, "is_owner">>(
      `SELECT m.group_id, m.user_id, m.role, m.cost_multiplier_micros, m.is_active, m.created_at, u.email, u.name
       FROM group_members m JOIN users u ON u.id = m.user_id
       WHERE m.group_id = $1 ${include_inactive ? "" : "AND m.is_active"} ORDER BY m.created_at, u.email`,
      [id],
    );
    return rows.map((member) => ({ ...member, is_owner: member.user_id === owner_id }));
  },

  countMembers(on: Queryable, groupId: string): Promise<number> {
    return countRows(on, "group_members WHERE group_id = $1", [groupId]);
  },

  async saveMember(tx: Transaction, member: MemberRow): Promise<void> {
    await insertRow(
      tx,
      "group_members",
      member,
      `ON CONFLICT (group_id, user_id) DO UPDATE SET role = excluded.role,
         cost_multiplier_micros = excluded.cost_multiplier_micros, is_active = excluded.is_active`,
    );
  },

  /** Ids of the groups of these names that belong to the platform or to an administrator of it. */
  async officialGroups(on: Queryable, names: readonly string[]): Promise<string[]> {
    if (names.length === 0) return [];
    const rows = await on.all<{ id: string }>(
      `SELECT g.id FROM user_groups g LEFT JOIN users u ON u.id = g.owner_id
       WHERE g.name IN (${names.map((_, i) => `$${i + 1}`).join(", ")}) AND (g.owner_id IS NULL OR u.is_admin)
       ORDER BY g.id LIMIT ${PROVIDED_MAX}`,
      names,
    );
    return rows.map(({ id }) => id);
  },

  membershipsOf(on: Queryable, userId: string): Promise<{ group_id: string; from_provider: boolean }[]> {
    return on.all("SELECT group_id, from_provider FROM group_members WHERE user_id = $1", [userId]);
  },

  /** A member because the sign-in provider says so. */
  async insertProvided(
    tx: Transaction,
    { groupId, userId, now }: { groupId: string; userId: string; now: string },
  ): Promise<void> {
    await tx.run(
      `INSERT INTO group_members (group_id, user_id, role, cost_multiplier_micros, is_active, created_at, from_provider)
       VALUES ($1, $2, 'member', ${MULTIPLIER_ONE}, TRUE, $3, TRUE) ON CONFLICT (group_id, user_id) DO NOTHING`,
      [groupId, userId, now],
    );
  },

  /** The owner stays, however they came in. */
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

  /** Drops the group's expired invitations and counts those that are left. */
  async sweepInvitations(tx: Transaction, groupId: string, now: string): Promise<number> {
    await tx.run("DELETE FROM group_invitations WHERE group_id = $1 AND expires_at <= $2", [groupId, now]);
    return countRows(tx, "group_invitations WHERE group_id = $1 AND uses < max_uses", [groupId]);
  },

  async insertInvitation(tx: Transaction, invitation: InvitationRow, tokenHash: string): Promise<void> {
    await insertRow(tx, "group_invitations", { ...invitation, token_hash: tokenHash });
  },

  invitation(on: Queryable, tokenHash: string): Promise<InvitationRow | null> {
    return on.get<InvitationRow>(
      `SELECT ${INVITATION_COLUMNS} FROM group_invitations WHERE token_hash = $1`,
      [tokenHash],
    );
  },

  openInvitations(
    on: Queryable,
    groupId: string,
    now: string,
  ): Promise<(InvitationRow & { creator_name: string })[]> {
    return on.all(
      `SELECT ${INVITATION_COLUMNS}, COALESCE((SELECT u.name FROM users u WHERE u.id = created_by), '') AS creator_name
       FROM group_invitations
       WHERE group_id = $1 AND expires_at > $2 AND uses < max_uses ORDER BY created_at DESC, id`,
      [groupId, now],
    );
  },

  async removeInvitation(tx: Transaction, groupId: string, id: string): Promise<boolean> {
    return (await tx.run("DELETE FROM group_invitations WHERE group_id = $1 AND id = $2", [groupId, id])) > 0;
  },

  /** Counts one use; false when there was none left or the time is over. */
  async useInvitation(tx: Transaction, id: string, now: string): Promise<boolean> {
    const used = await tx.run(
      "UPDATE group_invitations SET uses = uses + 1 WHERE id = $1 AND uses < max_uses AND expires_at > $2",
      [id, now],
    );
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

  /** Null when it cannot be redeemed. Of several who try at once, one gets it. */
  redeemCode(
    tx: Transaction,
    { hash, userId, now }: { hash: string; userId: string; now: string },
  ): Promise<{ points: number; note: string | null } | null> {
    return tx.get(
      `UPDATE redemption_codes SET redeemed_by = $2, redeemed_at = $3
       WHERE code_hash = $1 AND redeemed_at IS NULL AND expires_at > $3 RETURNING points, note`,
      [hash, userId, now],
    );
  },

  models(on: Queryable, groupId: string): Promise<{ rule: Rule; model_id: string }[]> {
    return on.all("SELECT rule, model_id FROM group_models WHERE group_id = $1 ORDER BY model_id", [groupId]);
  },

  /** The caller has left out what is there already. */
  async addModels(
    tx: Transaction,
    { groupId, rule, modelIds }: { groupId: string; rule: Rule; modelIds: readonly string[] },
  ): Promise<void> {
    const rows = modelIds.map((model_id) => ({ group_id: groupId, rule, model_id }));
    await insertAll(tx, "group_models", rows);
  },

  async removeModels(
    tx: Transaction,
    { groupId, rule, modelIds }: { groupId: string; rule: Rule; modelIds: readonly string[] },
  ): Promise<void> {
    for (const id of modelIds)
      await tx.run("DELETE FROM group_models WHERE group_id = $1 AND rule = $2 AND model_id = $3", [
        groupId,
        rule,
        id,
      ]);
  },
};
