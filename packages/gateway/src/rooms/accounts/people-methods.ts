import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { defineMethod, GivenId, Timestamp, WholeNumber } from "../../kernel/method.ts";
import { Email, Name } from "./schemas.ts";
import type { ListedUser } from "./store.ts";

const ADMIN = { auth: "admin", hint: "managing people is for administrators" } as const;
const LIST_DEFAULT = 50;
const LIST_MAX = 1_000;

const Person = z.object({
  id: z.uuid(),
  email: z.string(),
  name: z.string(),
  is_admin: z.boolean(),
  tier: z.string(),
  disabled: z.boolean(),
  email_verified: z
    .boolean()
    .describe("The sign-in provider or an administrator says that the address is the owner's"),
  created_at: Timestamp,
  last_seen_at: Timestamp.nullable().describe("When a session of theirs was last renewed"),
  active_keys: z.int(),
});
const Link = z.object({
  id: z.uuid(),
  token: z.string().describe("For the link; it cannot be shown again"),
  expires_at: Timestamp,
});
const Tier = z.string().max(64);

const toPerson = ({ disabled_at, ...user }: ListedUser) => ({ ...user, disabled: disabled_at !== null });

export const listUsers = defineMethod({
  name: "users.list",
  summary: "Accounts, newest first",
  ...ADMIN,
  params: z.object({
    search: z.string().trim().max(100).default("").describe("Part of the email, the name or the id"),
    limit: WholeNumber.default(LIST_DEFAULT).transform((n) => Math.min(LIST_MAX, Math.max(1, n))),
    offset: WholeNumber.default(0).transform((n) => Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, n))),
  }),
  result: z.object({ users: z.array(Person), total: z.int() }),
  handler: async ({ params, rooms }) => {
    const { users, total } = await rooms.accounts.store.listUsers(params);
    return { users: users.map(toPerson), total };
  },
});

export const createUser = defineMethod({
  name: "users.create",
  summary: "Make an account; its owner chooses the password with the one-time link",
  ...ADMIN,
  params: z.object({
    email: Email,
    name: Name.optional(),
    is_admin: z.boolean().default(false),
    tier: Tier.optional(),
  }),
  result: z.object({ id: z.uuid(), email: z.string(), name: z.string(), link: Link }),
  handler: async ({ params: { is_admin, ...account }, actor, rooms }) => {
    if (account.tier !== undefined) rooms.billing.requireTier(account.tier);
    const { user, link } = await rooms.accounts.people.create(actor, { ...account, isAdmin: is_admin });
    return { id: user.id, email: user.email, name: user.name, link };
  },
});

export const updateUser = defineMethod({
  name: "users.update",
  summary: "Change an account; what is left out stays. A disabled one's keys and sessions end at once",
  ...ADMIN,
  params: z.object({
    user_id: GivenId,
    name: Name.optional(),
    tier: Tier.optional(),
    is_admin: z.boolean().optional(),
    disabled: z.boolean().optional(),
    email_verified: z
      .boolean()
      .optional()
      .describe(
        "Say that the address is the owner's, so that signing in with the provider can link the account",
      ),
  }),
  handler: async ({ params: { user_id, tier, ...patch }, actor, rooms: { accounts, billing }, before }) => {
    if (tier !== undefined) billing.requireTier(tier);
    if (tier !== undefined) before.tier = await billing.tierOf(user_id);
    const was = await accounts.people.update(actor, user_id, patch);
    const { name, is_admin, email_verified } = was;
    Object.assign(before, { name, is_admin, email_verified, disabled: was.disabled_at !== null });
    if (tier !== undefined) await billing.setTier(user_id, tier);
  },
});

export const resetPassword = defineMethod({
  name: "users.password.reset",
  summary: "End an account's password and sessions; its owner chooses a new password with the one-time link",
  ...ADMIN,
  params: z.object({ user_id: GivenId }),
  result: Link,
  handler: ({ params, actor, rooms }) => rooms.accounts.people.resetPassword(actor, params.user_id),
});

export const inviteUser = defineMethod({
  name: "users.invite",
  summary: "Make a one-time link with which someone registers",
  ...ADMIN,
  params: z.object({
    email: Email.optional().describe("Only an account with this email can be made"),
    tier: Tier.optional(),
    is_admin: z.boolean().optional().describe("It makes an administrator"),
    group_id: GivenId.optional().describe("The new account is a member of this group"),
    note: z.string().trim().max(500).optional().describe("Shown to the person who is invited"),
  }),
  result: Link,
  handler: ({ params, actor, rooms }) => {
    if (params.tier !== undefined) rooms.billing.requireTier(params.tier);
    return rooms.accounts.people.invite(actor, params);
  },
});

export const listLinks = defineMethod({
  name: "users.links.list",
  summary: "One-time links that can still be used, newest first",
  ...ADMIN,
  result: z.array(
    z.object({
      id: z.uuid(),
      kind: z.enum(["invitation", "password"]),
      email: z.string().nullable(),
      tier: z.string().nullable(),
      is_admin: z.boolean(),
      group_name: z.string().nullable(),
      note: z.string().nullable(),
      created_by: z.string().describe("Name of the administrator"),
      created_at: Timestamp,
      expires_at: Timestamp,
    }),
  ),
  handler: async ({ rooms: { accounts } }) =>
    (await accounts.store.pendingLinks(isoTime(accounts.options.clock.now()))).map((link) => ({
      ...link,
      is_admin: Boolean(link.is_admin),
      kind: link.user_id === null ? ("invitation" as const) : ("password" as const),
      email: link.user_email ?? link.email,
      created_by: link.creator_name,
    })),
});

export const revokeLink = defineMethod({
  name: "users.links.revoke",
  summary: "End a one-time link that was not used",
  ...ADMIN,
  params: z.object({ link_id: GivenId }),
  handler: ({ params, rooms }) => rooms.accounts.people.revokeLink(params.link_id),
});
