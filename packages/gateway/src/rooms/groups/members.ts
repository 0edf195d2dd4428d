import { isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { isUuid } from "../../kernel/ids.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Database, Queryable, Transaction } from "../../storage/contract.ts";
import type { Accounts } from "../accounts/index.ts";
import type { Needs } from "../foundation.ts";
import { type MemberRow, type NamedMember, type Role, type SeenGroup, store } from "./store.ts";

/** `member`: any active member; `admin`: a group admin; platform administrators stand in for both. */
type Need = "member" | "admin" | "owner";

interface AccessOptions {
  actor: Actor;
  groupId: string;
  need: Need;
  method: string;
}

export type InGroup = Omit<AccessOptions, "need">;

/** A group without an owner is the platform's, so its administrators are the owner. */
const isOwner = (group: SeenGroup, actor: Actor): boolean =>
  group.owner_id === null ? actor.isAdmin : group.owner_id === actor.userId;

/** The group, for someone who may do this with it; to others it looks as if it did not exist. */
export async function accessGroup(
  on: Queryable,
  { actor, groupId, need, method }: AccessOptions,
): Promise<SeenGroup> {
  const group = await store.group(on, groupId, actor.userId);
  if (group) {
    if (need === "owner" && isOwner(group, actor)) return group;
    if (need === "admin" && (actor.isAdmin || group.my_role === "admin")) return group;
    if (need === "member" && (actor.isAdmin || group.my_role !== null)) return group;
  }
  if (need === "member" || (!group && actor.isAdmin))
    fail("not_found", "Group not found; group.list shows the groups you belong to");
  fail(
    "admin_required",
    `admin access required: ${method} is for ${need === "owner" ? "the owner" : "an admin"} of the group; group.list shows your role in yours`,
  );
}

/** Until the end of the transaction nobody else changes this group, its members or its pool. */
export const lockGroup = (tx: Transaction, groupId: string): Promise<void> => tx.lock(`group:${groupId}`);

/** Runs a change of a group: in one transaction, under its lock, with the right checked inside. */
export function changeGroup<T>(
  db: Pick<Database, "transaction">,
  access: AccessOptions,
  work: (tx: Transaction, group: SeenGroup) => Promise<T>,
): Promise<T> {
  return db.transaction(async (tx) => {
    await lockGroup(tx, access.groupId);
    return work(tx, await accessGroup(tx, access));
  });
}

export const MEMBERS_MAX = 2_000;

interface MembersOptions extends Needs<"db" | "bus" | "clock"> {
  accounts: Pick<Accounts, "actor" | "actorByEmail" | "giving">;
}

interface MemberPatch {
  role?: Role;
  cost_multiplier?: number;
  is_active?: boolean;
}

export class Members {
  constructor(readonly options: MembersOptions) {}

  async list(call: InGroup, which: { include_inactive: boolean }): Promise<NamedMember[]> {
    const { db } = this.options;
    const group = await accessGroup(db, { ...call, need: "admin" });
    return store.members(db, group, which);
  }

  /** Adds someone who has an account. For an existing member, only the given fields change. */
  add(call: InGroup, person: string, patch: MemberPatch): Promise<NamedMember> {
    return this.#save(call, person, async (tx, user) => {
      const existing = await store.member(tx, call.groupId, user.userId);
      if (!existing && (await store.countMembers(tx, call.groupId)) >= MEMBERS_MAX)
        fail("app_error", `A group has at most ${MEMBERS_MAX} members; remove some first`);
      // An id is no address that someone gave: it would tell whose it is.
      if (!existing && isUuid(person) && !call.actor.isAdmin) this.#refuseUnknown(person);
      const before = existing ?? {
        group_id: call.groupId,
        user_id: user.userId,
        role: "member" as const,
        cost_multiplier_micros: MULTIPLIER_ONE,
        is_active: true,
        created_at: isoTime(this.options.clock.now()),
      };
      return { before, patch: { ...patch, is_active: true }, isNew: !existing };
    });
  }

  update(call: InGroup, person: string, patch: MemberPatch): Promise<NamedMember> {
    return this.#save(call, person, async (tx, user) => ({
      before: (await store.member(tx, call.groupId, user.userId)) ?? this.#refuseStranger(person),
      patch,
    }));
  }

  async #save(
    call: InGroup,
    person: string,
    find: (
      tx: Transaction,
      user: Actor,
    ) => Promise<{ before: MemberRow; patch: MemberPatch; isNew?: boolean }>,
  ): Promise<NamedMember> {
    const user = await this.person(call, person);
    const saved = await changeGroup(this.options.db, { ...call, need: "admin" }, async (tx, group) => {
      const { before, patch, isNew } = await find(tx, user);
      if (group.owner_id === user.userId) refuseOwnerChange(patch);
      const { cost_multiplier: times } = patch;
      const member: MemberRow = {
        ...before,
        role: patch.role ?? before.role,
        cost_multiplier_micros:
          times === undefined ? before.cost_multiplier_micros : Math.round(times * MULTIPLIER_ONE),
        is_active: patch.is_active ?? before.is_active,
      };
      if (!call.actor.isAdmin) refuseDiscount(before, member);
      await store.saveMember(tx, member);
      await this.options.accounts.giving.endLinksOf(tx, user.userId);
      // Adding an address must not be a way to learn whose it is; the platform's administrators know everyone.
      const name = isNew && !call.actor.isAdmin ? user.email : user.name;
      return { ...member, email: user.email, name, is_owner: group.owner_id === user.userId };
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, saved.user_id);
    return saved;
  }

  async remove(call: InGroup, person: string): Promise<void> {
    const user = await this.person(call, person);
    await changeGroup(this.options.db, { ...call, need: "admin" }, async (tx, group) => {
      if (!(await store.member(tx, call.groupId, user.userId))) this.#refuseStranger(person);
      if (group.owner_id === user.userId)
        fail("forbidden", "The owner cannot be removed; group.delete ends the group");
      await store.removeMember(tx, call.groupId, { id: user.userId, email: user.email });
      await this.options.accounts.giving.endLinksOf(tx, user.userId);
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, user.userId);
  }

  /** Memberships as the provider has them, in groups of the platform or its administrators only. Other memberships stay. */
  async followProvider(userId: string, names: readonly string[]): Promise<void> {
    const { db, clock, bus, accounts } = this.options;
    const isChanged = await db.transaction(async (tx) => {
      const wanted = await store.officialGroups(tx, names);
      const held = await store.membershipsOf(tx, userId);
      const joined = wanted.filter((id) => !held.some(({ group_id }) => group_id === id));
      const left = held.filter(({ group_id, from_provider }) => from_provider && !wanted.includes(group_id));
      // In one order everywhere, so that two sign-ins cannot wait for each other.
      for (const id of [...joined, ...left.map(({ group_id }) => group_id)].sort()) await lockGroup(tx, id);
      for (const { group_id } of left) await store.removeProvided(tx, group_id, userId);
      if (left.length > 0) await accounts.giving.endLinksOf(tx, userId);
      for (const id of joined) {
        if ((await store.countMembers(tx, id)) >= MEMBERS_MAX) continue;
        await store.insertProvided(tx, { groupId: id, userId, now: isoTime(clock.now()) });
      }
      return joined.length + left.length > 0;
    });
    if (isChanged) bus.publish(PRINCIPAL_CHANGED, userId);
  }

  /** The account of an email or id, for group admins only. Call before a transaction: two connections could starve the pool. */
  async person(call: InGroup, emailOrId: string): Promise<Actor> {
    const { accounts, db } = this.options;
    await accessGroup(db, { ...call, need: "admin" });
    const found = isUuid(emailOrId)
      ? await accounts.actor(emailOrId.toLowerCase())
      : await accounts.actorByEmail(emailOrId);
    return found ?? this.#refuseUnknown(emailOrId);
  }

  #refuseUnknown(emailOrId: string): never {
    fail(
      "not_found",
      `No account has the email ${emailOrId}; group.invite.create makes an invitation to send there`,
    );
  }

  #refuseStranger(person: string): never {
    fail("not_found", `${person} is not a member of this group; group.members.add makes them one`);
  }
}

/** Below 1 the pool pays less than the platform does. One that a platform administrator gave may be sent back unchanged. */
function refuseDiscount(before: MemberRow, { cost_multiplier_micros: micros }: MemberRow): void {
  if (micros >= MULTIPLIER_ONE || micros === before.cost_multiplier_micros) return;
  fail(
    "admin_required",
    "`cost_multiplier`: only a platform administrator may give one below 1; choose 1 or more, or ask one",
  );
}

function refuseOwnerChange({ role, is_active }: MemberPatch): void {
  if (is_active === false) fail("forbidden", "The owner cannot be deactivated");
  if (role === "member") fail("forbidden", "The owner is always an admin of the group");
}
