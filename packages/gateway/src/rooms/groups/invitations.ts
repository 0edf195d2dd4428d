import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import { deleteExpired, type Queryable, type Sweep, type Transaction } from "../../storage/contract.ts";
import { emailFor, type Session } from "../accounts/index.ts";
import { accessGroup, changeGroup, type InGroup, lockGroup, MEMBERS_MAX } from "./members.ts";
import type { GroupsOptions } from "./service.ts";
import { type InvitationRow, newMember, type Role, type SeenGroup, store } from "./store.ts";

const TOKEN_PREFIX = "invite-";
export const isGroupInvitation = (token: string): boolean => token.startsWith(TOKEN_PREFIX);
const TOKEN_BYTES = 32;
const OPEN_MAX = 500;
export const INVITATION_SECONDS = 7 * 24 * 3600;
const SHOWN_PER_IP = 20;

export class Invitations {
  constructor(readonly options: GroupsOptions) {}

  /** Removes invitations that nobody can accept any more. */
  readonly sweep: Sweep = (...step) =>
    deleteExpired(this.options.db, { table: "group_invitations" }, ...step);

  async create(
    call: InGroup,
    { role, email, max_uses, ttl_secs }: { role: Role; email?: string; max_uses: number; ttl_secs: number },
  ): Promise<InvitationRow & { token: string }> {
    const { db, ids, clock, accounts } = this.options;
    const token = `${TOKEN_PREFIX}${ids.secret(TOKEN_BYTES)}`;
    const nowMs = clock.now();
    const invitation: InvitationRow = {
      id: ids.uuid(),
      group_id: call.groupId,
      role,
      email: email ?? null,
      max_uses,
      uses: 0,
      created_by: call.actor.userId,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + ttl_secs * 1000),
    };
    await changeGroup(db, call, async (tx) => {
      await accounts.giving.requireSession(tx, call.actor);
      if ((await store.sweepInvitations(tx, call.groupId, invitation.created_at)) >= OPEN_MAX)
        fail("app_error", `The group has ${OPEN_MAX} open invitations, the most it may; let some expire`);
      await store.insertInvitation(tx, invitation, sha256Hex(token));
    });
    return { ...invitation, token };
  }

  /** Joins the group. Does nothing for an existing member, and uses nothing up. */
  async accept(actor: Actor, token: string): Promise<SeenGroup> {
    const { db, bus } = this.options;
    const invitation = (await store.invitation(db, sha256Hex(token))) ?? refuseInvitation();
    if (invitation.email !== null && invitation.email !== actor.email)
      fail(
        "forbidden",
        "This invitation is for another email address; sign in with the account it was sent to",
      );
    const group = await db.transaction(async (tx) => {
      await lockGroup(tx, invitation.group_id);
      const member = await store.member(tx, invitation.group_id, actor.userId);
      if (member && !member.is_active)
        fail("forbidden", "Your membership was deactivated; only an admin of the group can restore it");
      if (!member) await this.#join(tx, invitation, actor.userId);
      return (await store.group(tx, invitation.group_id, actor.userId)) ?? refuseInvitation();
    });
    bus.publish(PRINCIPAL_CHANGED, actor.userId);
    return group;
  }

  /** Uses the invitation up; the caller has locked the group. */
  async #join(tx: Transaction, invitation: InvitationRow, userId: string): Promise<void> {
    const now = isoTime(this.options.clock.now());
    if (!(await this.#mayGive(tx, "membership", invitation))) refuseInvitation();
    if (!(await store.useInvitation(tx, invitation.id, now))) refuseInvitation();
    if ((await store.countMembers(tx, invitation.group_id)) >= MEMBERS_MAX)
      fail("app_error", `The group is full: it has ${MEMBERS_MAX} members`);
    const { role } = invitation;
    await store.saveMember(tx, { ...newMember(invitation.group_id, userId, now), role });
  }

  /** What the bearer of a valid invitation sees. */
  async show(token: string, { ip }: CallSource) {
    const { db, accounts } = this.options;
    const invitation = await this.#find(token, ip);
    const group = (await store.group(db, invitation.group_id, null)) ?? refuseInvitation();
    const creator = await accounts.actor(invitation.created_by);
    return {
      ...invitation,
      group_name: group.name,
      group_description: group.description,
      invited_by: creator?.name ?? "",
      registers: await this.#mayGive(db, "newcomer", invitation),
    };
  }

  /** Creates an account and its membership in one transaction. */
  async register(
    { token, password, email, name }: { token: string; password: string; email?: string; name?: string },
    source: CallSource,
  ): Promise<Session> {
    const { db, accounts } = this.options;
    const invitation = await this.#find(token, source.ip);
    await this.#requireRegistering(db, invitation);
    const address = emailFor(invitation.email, email);
    // Each use costs a hash, and reveals whether an address is taken.
    await accounts.limit("invitation-use", source.ip, SHOWN_PER_IP);
    const passwordHash = await accounts.hash(password);
    const user = await db.transaction(async (tx) => {
      await lockGroup(tx, invitation.group_id);
      await this.#requireRegistering(tx, invitation);
      // An administrator's invitation vouches for its address.
      const emailVerified =
        invitation.email !== null &&
        (await accounts.giving.mayGive(tx, { kind: "account", makerId: invitation.created_by }));
      const made = await accounts.insert(tx, { email: address, emailVerified, name, passwordHash });
      await this.#join(tx, invitation, made.id);
      return made;
    });
    return accounts.startSession(user, source);
  }

  /** Adds the account that `tx` creates to the group. `registers`: only the invitation allows the account. */
  async joinNewcomer(
    tx: Transaction,
    { token, user, registers }: { token: string; user: { id: string; email: string }; registers: boolean },
  ): Promise<string> {
    const invitation = (await this.#usable(tx, token)) ?? refuseInvitation();
    emailFor(invitation.email, user.email);
    await lockGroup(tx, invitation.group_id);
    if (registers) await this.#requireRegistering(tx, invitation);
    await this.#join(tx, invitation, user.id);
    return invitation.group_id;
  }

  #mayGive(on: Queryable, kind: "membership" | "newcomer", { created_by, group_id }: InvitationRow) {
    return this.options.accounts.giving.mayGive(on, { kind, makerId: created_by, groupId: group_id });
  }

  async #requireRegistering(on: Queryable, invitation: InvitationRow): Promise<void> {
    if (!(await this.#mayGive(on, "newcomer", invitation)))
      fail(
        "forbidden",
        "This invitation is for people who have an account here: sign in to use it, or ask an administrator of the service for one that registers you",
      );
  }

  async #usable(on: Queryable, token: string): Promise<InvitationRow | null> {
    const invitation = await store.invitation(on, sha256Hex(token));
    const now = isoTime(this.options.clock.now());
    if (!invitation || invitation.uses >= invitation.max_uses || invitation.expires_at <= now) return null;
    return (await this.#mayGive(on, "membership", invitation)) ? invitation : null;
  }

  async #find(token: string, ip: string): Promise<InvitationRow> {
    const invitation = await this.#usable(this.options.db, token);
    if (invitation) return invitation;
    await this.options.accounts.limit("invitation", ip, SHOWN_PER_IP);
    return refuseInvitation();
  }

  async list(call: InGroup) {
    const { db, clock } = this.options;
    await accessGroup(db, call);
    return store.openInvitations(db, call.groupId, isoTime(clock.now()));
  }

  async revoke(call: InGroup, invitationId: string): Promise<void> {
    await changeGroup(this.options.db, call, async (tx) => {
      if (!(await store.removeInvitation(tx, call.groupId, invitationId))) refuseInvitation();
    });
  }
}

function refuseInvitation(): never {
  fail(
    "not_found",
    "The invitation is unknown, expired, used up, or its maker no longer manages the group; ask an admin of the group for a new one",
  );
}
