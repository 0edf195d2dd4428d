import { isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { isUuid } from "../../kernel/ids.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Database, Queryable, Transaction } from "../../storage/contract.ts";
import type { GroupsOptions } from "./service.ts";
import { type MemberRow, type NamedMember, newMember, type Role, type SeenGroup, store } from "./store.ts";

/** `member`: any active member; `admin`: a group admin; platform administrators count as both. */
type Need = "member" | "admin" | "owner";

export interface InGroup {
  actor: Actor;
  groupId: string;
  need?: Need;
  method: string;
}

/** A group without an owner belongs to the platform, so platform administrators act as its owner. */
const isOwner = (group: SeenGroup, actor: Actor): boolean =>
  group.owner_id === null ? actor.isAdmin : group.owner_id === actor.userId;

/** The group, if the actor has this role in it; otherwise it is reported as missing. */
export async function accessGroup(on: Queryable, { actor, groupId, need = "admin", method }: InGroup) {
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

/** Locks the group, its members and its pool until the end of the transaction. */
export const lockGroup = (tx: Transaction, groupId: string): Promise<void> => tx.lock(`group:${groupId}`);

/** Runs a change of a group: in one transaction, under its lock, with the right checked inside. */
export function changeGroup<T>(
  db: Pick<Database, "transaction">,
  access: InGroup,
  work: (tx: Transaction, group: SeenGroup) => Promise<T>,
): Promise<T> {
  return db.transaction(async (tx) => {
    await lockGroup(tx, access.groupId);
    return work(tx, await accessGroup(tx, access));
  });
}

export const MEMBERS_MAX = 2_000;

interface MemberPatch {
  role?: Role;
  cost_multiplier?: number;
  is_active?: boolean;
}

export class Members {
  constructor(readonly options: GroupsOptions) {}

  async list(call: InGroup, which: { include_inactive: boolean }): Promise<NamedMember[]> {
    const { db } = this.options;
    return store.members(db, await accessGroup(db, call), which.include_inactive);
  }

  /** Adds an existing account to the group. For an existing member, only the given fields change. */
  add(call: InGroup, person: string, patch: MemberPatch): Promise<NamedMember> {
    return this.#save(call, person, { ...patch, is_active: true }, async (tx, { userId }) => {
      if ((await store.countMembers(tx, call.groupId)) >= MEMBERS_MAX)
        fail("app_error", `A group has at most ${MEMBERS_MAX} members; remove some first`);
      // Given an id instead of an email, the answer would reveal whose it is.
      if (isUuid(person) && !call.actor.isAdmin) this.#refuseUnknown(person);
      return newMember(call.groupId, userId, isoTime(this.options.clock.now()));
    });
  }

  update(call: InGroup, person: string, patch: MemberPatch): Promise<NamedMember> {
    return this.#save(call, person, patch, () => this.#refuseStranger(person));
  }

  async #save(
    call: InGroup,
    person: string,
    patch: MemberPatch,
    join: (tx: Transaction, user: Actor) => MemberRow | Promise<MemberRow>,
  ): Promise<NamedMember> {
    const user = await this.person(call, person);
    const saved = await changeGroup(this.options.db, call, async (tx, group) => {
      const existing = await store.member(tx, call.groupId, user.userId);
      const before = existing ?? (await join(tx, user));
      if (group.owner_id === user.userId) {
        if (patch.is_active === false) fail("forbidden", "The owner cannot be deactivated");
        if (patch.role === "member") fail("forbidden", "The owner is always an admin of the group");
      }
      const micros = patch.cost_multiplier && Math.round(patch.cost_multiplier * MULTIPLIER_ONE);
      const member: MemberRow = {
        ...before,
        role: patch.role ?? before.role,
        cost_multiplier_micros: micros ?? before.cost_multiplier_micros,
        is_active: patch.is_active ?? before.is_active,
      };
      if (!call.actor.isAdmin) refuseDiscount(before, member);
      await store.saveMember(tx, member);
      await this.options.accounts.giving.endLinksOf(tx, user.userId);
      // Adding an email must not reveal whose it is, except to platform administrators, who see everyone anyway.
      const name = !existing && !call.actor.isAdmin ? user.email : user.name;
      return { ...member, email: user.email, name, is_owner: group.owner_id === user.userId };
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, saved.user_id);
    return saved;
  }

  async remove(call: InGroup, person: string): Promise<void> {
    const user = await this.person(call, person);
    await changeGroup(this.options.db, call, async (tx, group) => {
      if (!(await store.member(tx, call.groupId, user.userId))) this.#refuseStranger(person);
      if (group.owner_id === user.userId)
        fail("forbidden", "The owner cannot be removed; group.delete ends the group");
      await store.removeMember(tx, call.groupId, { id: user.userId, email: user.email });
      await this.options.accounts.giving.endLinksOf(tx, user.userId);
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, user.userId);
  }

  /** Takes over memberships from the provider, only in groups of the platform or its administrators. Others stay. */
  async followProvider(userId: string, names: readonly string[]): Promise<void> {
    const { db, clock, bus, accounts } = this.options;
    const isChanged = await db.transaction(async (tx) => {
      const wanted = await store.officialGroups(tx, names);
      const held = await store.membershipsOf(tx, userId);
      const joined = wanted.filter((id) => !held.some(({ group_id }) => group_id === id));
      const left = held.filter(({ group_id, from_provider }) => from_provider && !wanted.includes(group_id));
      // Always in the same order, so that two sign-ins cannot deadlock.
      for (const id of [...joined, ...left.map(({ group_id }) => group_id)].sort()) await lockGroup(tx, id);
      for (const { group_id } of left) await store.removeProvided(tx, group_id, userId);
      if (left.length > 0) await accounts.giving.endLinksOf(tx, userId);
      for (const id of joined) {
        if ((await store.countMembers(tx, id)) >= MEMBERS_MAX) continue;
        await store.insertProvided(tx, newMember(id, userId, isoTime(clock.now())));
      }
      return joined.length + left.length > 0;
    });
    if (isChanged) bus.publish(PRINCIPAL_CHANGED, userId);
  }

  /** The account with this email or id, for group admins only. Call it outside of a transaction: it takes a second connection. */
  async person(call: InGroup, emailOrId: string): Promise<Actor> {
    const { accounts, db } = this.options;
    await accessGroup(db, call);
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

/** Only platform administrators may set a multiplier below 1, with which the platform pays part. Keeping one is allowed. */
function refuseDiscount(before: MemberRow, { cost_multiplier_micros: micros }: MemberRow): void {
  if (micros >= MULTIPLIER_ONE || micros === before.cost_multiplier_micros) return;
  fail(
    "admin_required",
    "`cost_multiplier`: only a platform administrator may give one below 1; choose 1 or more, or ask one",
  );
}
