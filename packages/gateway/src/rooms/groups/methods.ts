import { z } from "zod";
import type { Rooms } from "../../kernel/context.ts";
import { defineMethod, GivenId, type Ok, Timestamp } from "../../kernel/method.ts";
import { MULTIPLIER_ONE } from "../../kernel/payer.ts";
import { Email, Name, NewPassword, SessionResult } from "../accounts/index.ts";
import { StatementResult } from "../ledger/index.ts";
import { NANO_PER_USD, methods as usage } from "../usage/index.ts";
import { INVITATION_SECONDS } from "./invitations.ts";
import type { InGroup as Call } from "./members.ts";
import type { NamedMember, SeenGroup } from "./store.ts";

const DAY_SECONDS = 24 * 3600;

const GroupId = z.guid().toLowerCase();
const Points = z.int().min(1).max(1_000_000_000_000);
const Note = z.string().trim().max(200).optional();

const InGroup = z.object({ group_id: GroupId });
const InvitationToken = z.string().trim().min(1).max(128);
const Description = z.string().trim().max(500);
const Role = z.enum(["admin", "member"]);
const Person = z.string().trim().min(1).max(254).describe("The member's email; a user id works too");
const CostMultiplier = z
  .number()
  .min(0.000_001, "must be more than 0; 1 is the plain price")
  .max(1_000)
  .describe(
    "What a request costs the pool is multiplied by this; kept to 6 decimals. Below 1 only by a platform administrator",
  );

const Group = z.object({
  id: z.guid(),
  name: z.string(),
  description: z.string(),
  my_role: z
    .enum(["owner", "admin", "member"])
    .nullable()
    .describe("Null for a platform administrator who is not a member"),
  member_count: z.int().describe("Active members"),
  enforce_model_allowlist: z.boolean().describe("Group keys may use only the allowed models"),
  rpm_ceiling: z
    .int()
    .nullable()
    .describe("Requests a minute for all keys of the group together; null: no ceiling"),
  balance: z.int().describe("Points in the pool"),
  monthly_refill: z.int().nullable().describe("Points that the pool is filled up to when a UTC month begins"),
  member_budget_usd: z
    .number()
    .nullable()
    .describe("What each member may spend of the pool in a UTC month; null: all of it"),
  created_at: Timestamp,
});
const Member = z.object({
  user_id: z.guid(),
  email: z.string(),
  name: z.string(),
  role: Role,
  is_owner: z.boolean(),
  cost_multiplier: z.number(),
  is_active: z.boolean(),
  joined_at: Timestamp,
});
const Invitation = z.object({
  id: z.guid(),
  role: Role,
  email: z.string().nullable(),
  max_uses: z.int(),
  created_at: Timestamp,
  expires_at: Timestamp,
});
export const OpenInvitation = Invitation.extend({
  uses: z.int(),
  created_by: z.string().describe("Name of who made it"),
});
const ModelLists = z.object({ allowed: z.array(z.string()), denied: z.array(z.string()) });

export const toGroup = (
  { owner_id, my_role, member_budget_nano_usd: budget, ...group }: SeenGroup,
  userId: string | undefined,
) => ({
  ...group,
  enforce_model_allowlist: Boolean(group.enforce_model_allowlist),
  member_budget_usd: budget === null ? null : budget / NANO_PER_USD,
  my_role: my_role && owner_id === userId ? ("owner" as const) : my_role,
});
const toMember = (member: NamedMember) => ({
  ...member,
  is_active: Boolean(member.is_active),
  cost_multiplier: member.cost_multiplier_micros / MULTIPLIER_ONE,
  joined_at: member.created_at,
});

/** A method that acts on one group, where the room checks the role of the caller. */
const onGroup = <
  const Name extends string,
  Params extends z.ZodType<{ group_id: string }>,
  Result extends z.ZodType = typeof Ok,
>({
  role = "group admin",
  handler,
  ...terms
}: {
  name: Name;
  summary: string;
  role?: string;
  params: Params;
  result?: Result;
  handler(asked: {
    call: Call;
    params: z.output<Params>;
    rooms: Rooms;
  }): z.input<Result> | Promise<z.input<Result>>;
}) =>
  defineMethod<Name, "jwt", Params, Result>({
    ...terms,
    auth: "jwt",
    role,
    handler: ({ params, actor, rooms }) =>
      handler({ call: { actor, groupId: params.group_id, method: terms.name }, params, rooms }),
  });

export const create = defineMethod({
  name: "group.create",
  summary: "Create a group; you become its owner. With the admin token it belongs to the platform",
  auth: "jwt_or_admin_token",
  params: z.object({
    name: Name,
    description: Description.optional(),
    id: GroupId.optional().describe("Your own id: a repeated call gets the group that the first one made"),
  }),
  result: Group,
  handler: async ({ params, actor, rooms }) =>
    toGroup(await rooms.groups.create(actor, params), actor?.userId),
});

export const list = defineMethod({
  name: "group.list",
  summary: "Your groups, newest first. With the admin token: all groups",
  auth: "jwt_or_admin_token",
  params: z.object({ everyone: z.boolean().optional().describe("All groups: for administrators") }),
  result: z.array(Group),
  handler: async ({ params, actor, rooms }) =>
    (await rooms.groups.list(actor, params)).map((group) => toGroup(group, actor?.userId)),
});

export const get = onGroup({
  name: "group.get",
  summary: "A group with its active members, its rules on models and what you spent of its pool",
  role: "group member",
  params: InGroup,
  result: Group.extend({
    members: z.array(Member),
    models: ModelLists,
    my_month_usd: z.number().describe("What you spent of the pool in this UTC month"),
  }),
  handler: async ({ call, rooms }) => {
    const { group, members, ...rest } = await rooms.groups.get(call);
    return {
      ...toGroup(group, call.actor.userId),
      members: members.map(toMember),
      ...rest,
    };
  },
});

export const update = onGroup({
  name: "group.update",
  summary: "Change a group; omitted fields stay as they are",
  params: InGroup.extend({
    name: Name.optional(),
    description: Description.optional(),
    enforce_model_allowlist: z.boolean().optional(),
    rpm_ceiling: z.int().min(1).max(1_000_000).nullable().optional().describe("null clears it"),
    monthly_refill: Points.nullable()
      .optional()
      .describe("Fill the pool up to so many points now and each month: for platform administrators"),
    member_budget_usd: z.number().min(0).max(1_000_000).nullable().optional(),
  }),
  result: Group,
  handler: async ({ params: { group_id: _, member_budget_usd: usd, ...patch }, call, rooms }) => {
    const budget = usd && Math.round(usd * NANO_PER_USD);
    const group = await rooms.groups.update(call, { ...patch, member_budget_nano_usd: budget });
    return toGroup(group, call.actor.userId);
  },
});

export const remove = onGroup({
  name: "group.delete",
  summary: "Delete a group; its keys become personal keys, the pool's points return to the platform",
  role: "group owner",
  params: InGroup,
  handler: ({ call, rooms }) => rooms.groups.remove(call),
});

export const listMembers = onGroup({
  name: "group.members.list",
  summary: "The group's active members",
  params: InGroup.extend({
    include_inactive: z.boolean().default(false).describe("Include deactivated members"),
  }),
  result: z.array(Member),
  handler: async ({ params, call, rooms }) => (await rooms.groups.members.list(call, params)).map(toMember),
});

export const series = onGroup({
  name: "group.series",
  summary: "What was spent with the group's keys, by UTC day and by member, model or else",
  params: usage.series.params.pick({ since: true, until: true, by: true }).extend(InGroup.shape),
  result: usage.series.result,
  handler: async ({ params, call: { actor, groupId, method }, rooms }) => {
    await rooms.groups.requireAdmin(actor, groupId, method);
    // Admins see the figures of everyone in their group.
    return rooms.usage.series({ ...actor, isAdmin: true }, { ...params, everyone: true });
  },
});

export const addMember = onGroup({
  name: "group.members.add",
  summary: "Add someone who has an account; for an existing member, the given fields change",
  params: InGroup.extend({
    email: Person,
    role: Role.optional(),
    cost_multiplier: CostMultiplier.optional(),
  }),
  result: Member,
  handler: async ({ params, call, rooms }) =>
    toMember(await rooms.groups.members.add(call, params.email, params)),
});

export const updateMember = onGroup({
  name: "group.members.update",
  summary: "Change a member; a deactivated one's group keys stop working at once",
  params: InGroup.extend({
    user_id: Person,
    role: Role.optional(),
    cost_multiplier: CostMultiplier.optional(),
    is_active: z.boolean().optional(),
  }),
  result: Member,
  handler: async ({ params, call, rooms }) =>
    toMember(await rooms.groups.members.update(call, params.user_id, params)),
});

export const removeMember = onGroup({
  name: "group.members.remove",
  summary: "Remove a member; their group keys stop working at once",
  params: InGroup.extend({ user_id: Person }),
  handler: ({ params, call, rooms }) => rooms.groups.members.remove(call, params.user_id),
});

export const invite = onGroup({
  name: "group.invite.create",
  summary: "Create an invitation; its token is shown once",
  params: InGroup.extend({
    role: Role.default("member"),
    email: Email.optional().describe("Only the account with this email may accept"),
    max_uses: z.int().min(1).max(1_000).default(1),
    ttl_secs: z
      .int()
      .min(1)
      .max(365 * DAY_SECONDS)
      .default(INVITATION_SECONDS),
  }),
  result: Invitation.extend({
    group_id: z.guid(),
    token: z.string().describe("It cannot be shown again"),
  }),
  handler: ({ params, call, rooms }) => rooms.groups.invitations.create(call, params),
});

export const accept = defineMethod({
  name: "group.invite.accept",
  summary: "Join a group by invitation; changes nothing for an existing member",
  auth: "jwt",
  params: z.object({ token: InvitationToken }),
  result: Group,
  handler: async ({ params, actor, rooms }) =>
    toGroup(await rooms.groups.invitations.accept(actor, params.token), actor.userId),
});

export const showInvitation = defineMethod({
  name: "group.invite.show",
  summary: "Who invites to what, for the bearer of an invitation",
  auth: "public",
  params: z.object({ token: InvitationToken }),
  result: z.object({
    group_name: z.string(),
    group_description: z.string(),
    invited_by: z.string(),
    role: Role,
    email: z.string().nullable().describe("Only an account with this email may accept"),
    registers: z.boolean().describe("Someone without an account can make one with it"),
    expires_at: Timestamp,
  }),
  handler: ({ params, caller, rooms }) => rooms.groups.invitations.show(params.token, caller),
});

export const registerInvited = defineMethod({
  name: "group.invite.register",
  summary: "Make an account by invitation, a member of the group from the start, and sign in",
  auth: "public",
  params: z.object({
    token: InvitationToken,
    password: NewPassword,
    email: Email.optional().describe("Needed where the invitation is not for a particular address"),
    name: Name.optional(),
  }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.groups.invitations.register(params, caller),
});

export const listInvitations = onGroup({
  name: "group.invite.list",
  summary: "Invitations of a group that can still be used, newest first",
  params: InGroup,
  result: z.array(OpenInvitation),
  handler: ({ call, rooms }) => rooms.groups.invitations.list(call),
});

export const revokeInvitation = onGroup({
  name: "group.invite.revoke",
  summary: "End an invitation that was not used up",
  params: InGroup.extend({ invitation_id: z.guid().toLowerCase() }),
  handler: ({ params, call, rooms }) => rooms.groups.invitations.revoke(call, params.invitation_id),
});

export const listModels = onGroup({
  name: "group.models.list",
  summary: "The models that the group's keys may and may not use",
  params: InGroup,
  result: ModelLists,
  handler: ({ call, rooms }) => rooms.groups.models(call),
});

const ModelChange = InGroup.extend({
  model_ids: z.array(z.string().trim().min(1).max(128)).min(1).max(200),
  remove: z.boolean().default(false).describe("Take the models off this list instead"),
});

const changeModels = <const Name extends string>(name: Name, rule: "allow" | "deny", summary: string) =>
  onGroup({
    name,
    summary,
    params: ModelChange,
    result: ModelLists,
    handler: ({ params, call, rooms }) => rooms.groups.changeModels(call, { ...params, rule }),
  });
export const allowModels = changeModels(
  "group.models.allow",
  "allow",
  "Allow models; it restricts the group's keys once enforce_model_allowlist is on",
);
export const denyModels = changeModels(
  "group.models.deny",
  "deny",
  "Deny models to the group's keys; a denial wins over a permission",
);

export const topup = defineMethod({
  name: "group.credits.topup",
  summary: "Issue points to a group's pool",
  auth: "admin",
  hint: "group.credits.topup issues points, which only a platform administrator may",
  params: InGroup.extend({ points: Points, note: Note }),
  result: z.object({ group_id: z.guid(), balance: z.int() }),
  handler: async ({ params, actor, rooms }) => {
    const call = { actor, groupId: params.group_id, method: "group.credits.topup" };
    return { group_id: params.group_id, balance: await rooms.groups.credits.topup(call, params) };
  },
});

export const balance = onGroup({
  name: "group.credits.balance",
  summary: "The pool's balance and recent entries",
  params: InGroup,
  result: StatementResult.extend({ group_id: z.guid() }),
  handler: async ({ call, rooms }) => ({
    group_id: call.groupId,
    ...(await rooms.groups.credits.balance(call)),
  }),
});

export const allocate = onGroup({
  name: "group.credits.allocate",
  summary: "Move points from the pool to a member's wallet; refused whole when the pool is short",
  params: InGroup.extend({ user_id: Person, points: Points, note: Note }),
  result: z.object({
    group_id: z.guid(),
    user: z.string().describe("Email of the member"),
    points: z.int(),
    balance: z.int().describe("What the pool has left"),
  }),
  handler: async ({ params, call, rooms }) => {
    const { poolBalance, email } = await rooms.groups.credits.allocate(call, params.user_id, params);
    return { group_id: params.group_id, user: email, points: params.points, balance: poolBalance };
  },
});

const ISSUING = {
  auth: "admin",
  hint: "codes issue points, which only a platform administrator may",
} as const;

export const CodeOrder = z.object({
  count: z.int().min(1).max(500),
  points: Points,
  note: Note.describe("Shown in the ledger of those who redeem them"),
  ttl_secs: z
    .int()
    .min(1)
    .max(3 * 365 * DAY_SECONDS)
    .default(365 * DAY_SECONDS),
});

export const createCodes = defineMethod({
  name: "codes.create",
  summary: "Make redemption codes: each gives its points once, to whoever redeems it first",
  ...ISSUING,
  params: CodeOrder,
  result: z.object({
    id: z.uuid().describe("Of the batch"),
    codes: z.array(z.string()).describe("They cannot be shown again"),
    expires_at: Timestamp,
  }),
  handler: ({ params, actor, rooms }) => rooms.groups.codes.create(actor, params),
});

export const CodeBatch = z.object({
  id: z.uuid(),
  points: z.int().describe("Of each code"),
  note: z.string().nullable(),
  codes: z.int(),
  redeemed: z.int(),
  created_by: z.string().describe("Email of who made them"),
  created_at: Timestamp,
  expires_at: Timestamp,
});

export const listCodes = defineMethod({
  name: "codes.list",
  summary: "Batches of redemption codes that have not expired, newest first",
  ...ISSUING,
  result: z.array(CodeBatch),
  handler: ({ rooms }) => rooms.groups.codes.list(),
});

export const revokeCodes = defineMethod({
  name: "codes.revoke",
  summary: "End the codes of a batch that were not redeemed",
  ...ISSUING,
  params: z.object({ id: GivenId }),
  handler: ({ params, rooms }) => rooms.groups.codes.revoke(params.id),
});

export const redeemCode = defineMethod({
  name: "codes.redeem",
  summary: "Redeem a code: its points go to your wallet, or to the pool of one of your groups",
  auth: "jwt",
  params: z.object({ code: z.string().trim().min(1).max(128), group_id: GroupId.optional() }),
  result: z.object({ points: z.int(), balance: z.int().describe("Of the wallet or the pool") }),
  handler: ({ params, actor, caller, rooms }) => rooms.groups.codes.redeem(actor, params, caller),
});
