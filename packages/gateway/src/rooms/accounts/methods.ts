import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { defineMethod, GivenId, Timestamp, WholeNumber } from "../../kernel/method.ts";

export const Email = z.string().trim().toLowerCase().max(254).pipe(z.email("must be an email address"));
export const NewPassword = z
  .string()
  .min(8, "must have at least 8 characters")
  .max(128, "must have at most 128 characters");
export const Name = z.string().trim().min(1).max(80);
export const User = z.object({ id: z.uuid(), email: z.string(), name: z.string() });

export const SignedInSession = z.object({
  id: z.uuid(),
  ip: z.string().nullable(),
  user_agent: z.string().nullable(),
  created_at: Timestamp,
  last_used_at: Timestamp.describe("When its tokens were last renewed"),
});

export const SessionResult = z.object({
  access_token: z.string(),
  refresh_token: z.string(),
  token_type: z.literal("Bearer"),
  expires_in: z.int().describe("Lifetime of the access token in seconds"),
  user: User.extend({ is_admin: z.boolean() }),
});

export const Person = User.extend({
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

export const Link = z.object({
  id: z.uuid(),
  token: z.string().describe("For the link; it cannot be shown again"),
  expires_at: Timestamp,
});

export const PendingLink = z.object({
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
});

const ADMIN = { auth: "admin", hint: "managing people is for administrators" } as const;
const LIST_DEFAULT = 50;
const LIST_MAX = 1_000;

const Tier = z.string().max(64);
const Token = z.string().trim().min(1).max(128);

export const register = defineMethod({
  name: "auth.register",
  summary: "Create an account and sign in; the first account becomes the administrator",
  auth: "public",
  params: z.object({
    email: Email,
    password: NewPassword,
    name: Name.optional(),
    setup_token: z
      .string()
      .max(128)
      .optional()
      .describe("From the setup link; only the first account may need it"),
  }),
  result: SessionResult,
  handler: ({ params: { setup_token, ...account }, caller, rooms }) =>
    rooms.accounts.register({ ...account, setupToken: setup_token }, caller),
});

export const login = defineMethod({
  name: "auth.login",
  summary: "Sign in with email and password",
  auth: "public",
  params: z.object({
    email: z.string().trim().toLowerCase().min(1).max(254),
    password: z.string().min(1).max(1024),
  }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.login(params, caller),
});

export const refresh = defineMethod({
  name: "auth.refresh",
  summary: "Exchange a refresh token, which works once, for a fresh pair",
  auth: "public",
  audit: false,
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.refresh(params.refresh_token, caller),
});

export const logout = defineMethod({
  name: "auth.logout",
  summary: "Sign out: ends the session of a refresh token; its tokens stop working at once",
  auth: "public",
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  handler: ({ params, caller, rooms }) => rooms.accounts.signOut(params.refresh_token, caller.ip),
});

export const me = defineMethod({
  name: "auth.me",
  summary: "The signed-in account",
  auth: "jwt",
  result: User,
  handler: ({ actor }) => ({ id: actor.userId, email: actor.email, name: actor.name }),
});

export const setPassword = defineMethod({
  name: "auth.password.set",
  summary: "Change your password; your other sessions end",
  auth: "jwt",
  params: z.object({ current_password: z.string().min(1).max(1024), new_password: NewPassword }),
  handler: ({ params, actor, caller, rooms }) =>
    rooms.accounts.changePassword(actor, {
      current: params.current_password,
      next: params.new_password,
      ip: caller.ip,
    }),
});

export const setName = defineMethod({
  name: "auth.name.set",
  summary: "Change the name that others see of you",
  auth: "jwt",
  params: z.object({ name: Name }),
  handler: async ({ params, actor, rooms, before }) => {
    before.name = (await rooms.accounts.people.update(actor, actor.userId, params)).name;
  },
});

export const listSessions = defineMethod({
  name: "auth.sessions.list",
  summary: "Where you are signed in, the session used last first",
  auth: "jwt",
  result: z.array(SignedInSession.extend({ current: z.boolean().describe("The session of this call") })),
  handler: async ({ actor, caller, rooms }) =>
    (await rooms.accounts.sessions(actor.userId)).map((session) => ({
      ...session,
      current: session.id === caller.sessionId,
    })),
});

export const endSessions = defineMethod({
  name: "auth.sessions.end",
  summary: "Sign out of one session, or of all others; their tokens stop working at once",
  auth: "jwt",
  params: z.object({ session_id: GivenId.optional().describe("Left out: all but the session of this call") }),
  result: z.object({ ended: z.int() }),
  handler: async ({ params, actor, caller, rooms }) => ({
    ended: await rooms.accounts.endSessions(
      actor.userId,
      params.session_id === undefined ? { except: caller.sessionId } : { only: params.session_id },
    ),
  }),
});

export const showLink = defineMethod({
  name: "auth.link.show",
  summary: "What a one-time link is for, and who made it",
  auth: "public",
  params: z.object({ token: Token }),
  result: z.object({
    kind: z.enum(["invitation", "password"]).describe("Make an account, or choose the password of one"),
    invited_by: z.string(),
    email: z.string().nullable().describe("Null: the bearer chooses"),
    name: z.string().nullable(),
    note: z.string().nullable().describe("Of who made it"),
    expires_at: Timestamp,
  }),
  handler: ({ params, caller, rooms }) => rooms.accounts.people.show(params.token, caller),
});

export const acceptLink = defineMethod({
  name: "auth.link.accept",
  summary: "Use a one-time link: choose a password, and sign in",
  auth: "public",
  params: z.object({ token: Token, password: NewPassword, email: Email.optional(), name: Name.optional() }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.people.accept(params, caller),
});

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
  handler: ({ params, rooms }) => rooms.accounts.store.listUsers(params),
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
  result: User.extend({ link: Link }),
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
  result: z.array(PendingLink),
  handler: async ({ rooms: { accounts } }) => {
    const links = await accounts.store.pendingLinks(isoTime(accounts.options.clock.now()));
    return links.map((link) => ({ ...link, is_admin: Boolean(link.is_admin) }));
  },
});

export const revokeLink = defineMethod({
  name: "users.links.revoke",
  summary: "End a one-time link that was not used",
  ...ADMIN,
  params: z.object({ link_id: GivenId }),
  handler: ({ params, rooms }) => rooms.accounts.people.revokeLink(params.link_id),
});
