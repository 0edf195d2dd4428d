import type { Bus } from "../../bus/contract.ts";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { type Ids, sha256Hex } from "../../kernel/ids.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Database, Sweep } from "../../storage/contract.ts";
import { type AccessOptions, changeGroup, lockGroup } from "./access.ts";
import { MEMBERS_MAX } from "./members.ts";
import { type InvitationRow, type Role, type SeenGroup, store } from "./store.ts";

const TOKEN_PREFIX = "invite-";
const TOKEN_BYTES = 32;
const OPEN_MAX = 500;
export const INVITATION_SECONDS = 7 * 24 * 3600;

interface InvitationsOptions {
  db: Database;
  bus: Bus;
  clock: Clock;
  ids: Ids;
}

export class Invitations {
  constructor(readonly options: InvitationsOptions) {}

  /** Removes invitations that nobody can accept any more. */
  readonly sweep: Sweep = (nowMs, rowsMax) =>
    store.deleteExpiredInvitations(this.options.db, isoTime(nowMs), rowsMax);

  async create(
    call: Omit<AccessOptions, "need">,
    { role, email, maxUses, ttlSeconds }: { role: Role; email?: string; maxUses: number; ttlSeconds: number },
  ): Promise<InvitationRow & { token: string }> {
    const { db, ids, clock } = this.options;
    const token = `${TOKEN_PREFIX}${ids.secret(TOKEN_BYTES)}`;
    const nowMs = clock.now();
    const invitation: InvitationRow = {
      id: ids.uuid(),
      group_id: call.groupId,
      role,
      email: email ?? null,
      max_uses: maxUses,
      uses: 0,
      created_by: call.actor.userId,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + ttlSeconds * 1000),
    };
    await changeGroup(db, { ...call, need: "admin" }, async (tx) => {
      if ((await store.sweepInvitations(tx, call.groupId, invitation.created_at)) >= OPEN_MAX)
        fail("app_error", `The group has ${OPEN_MAX} open invitations, the most it may; let some expire`);
      await store.insertInvitation(tx, invitation, sha256Hex(token));
    });
    return { ...invitation, token };
  }

  /** Joins the group. For an existing member it changes nothing and uses nothing up. */
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
      if (!member) {
        const now = isoTime(this.options.clock.now());
        if (!(await store.useInvitation(tx, invitation.id, now))) refuseInvitation();
        if ((await store.countMembers(tx, invitation.group_id)) >= MEMBERS_MAX)
          fail("app_error", `The group is full: it has ${MEMBERS_MAX} members`);
        await store.saveMember(tx, {
          group_id: invitation.group_id,
          user_id: actor.userId,
          role: invitation.role,
          cost_multiplier_micros: MULTIPLIER_ONE,
          is_active: true,
          created_at: now,
        });
      }
      return (await store.group(tx, invitation.group_id, actor.userId)) ?? refuseInvitation();
    });
    bus.publish(PRINCIPAL_CHANGED, actor.userId);
    return group;
  }
}

function refuseInvitation(): never {
  fail("not_found", "The invitation is unknown, expired or used up; ask an admin of the group for a new one");
}
