import { z } from "zod";
import { defineMethod, GivenId, Timestamp } from "../../kernel/method.ts";
import { SignedInSession } from "../accounts/index.ts";
import { LimitParams } from "./limits.ts";

const Name = z.string().trim().min(1).max(80);

const Key = z.object({
  id: z.uuid(),
  name: z.string(),
  key_prefix: z.string().describe("First 8 characters of the key's uuid; usage rows carry it as api_key_id"),
  project: z.string(),
  group_id: z.guid().nullable().describe("The group whose pool and limits apply, if any"),
  created_at: Timestamp,
  capture_until: Timestamp.nullable().describe(
    "Until then an administrator has its prompts and answers captured; null, or past: they are not stored",
  ),
  expires_at: Timestamp.nullable(),
  monthly_budget_usd: z.number().nullable(),
  total_budget_usd: z.number().nullable(),
  allowed_models: z.array(z.string()).nullable(),
  requests_per_minute: z.int().nullable(),
  tokens_per_minute: z.int().nullable(),
});

const IssuedKey = Key.extend({
  key: z.string().describe("The secret: service-<uuid>. It cannot be shown again"),
});

const ListedKeys = z.array(
  Key.extend({
    active: z.boolean(),
    revoked_at: Timestamp.nullable(),
    last_used_at: Timestamp.nullable().describe("When its latest metered request ended"),
    spent_month_usd: z.number().describe("In this UTC month"),
    spent_total_usd: z.number(),
    last_refusal: z
      .object({ at: Timestamp, code: z.string(), message: z.string() })
      .nullable()
      .describe("Why a request with it was last refused: expired, a model, a pace, a budget or a quota"),
  }),
);

export const list = defineMethod({
  name: "keys.list",
  summary: "Your API keys, newest first, without their secrets",
  auth: "jwt",
  result: ListedKeys,
  handler: ({ actor, rooms }) => rooms.keys.list(actor.userId),
});

export const create = defineMethod({
  name: "keys.create",
  summary: "Issue an API key; the secret is shown once",
  auth: "jwt",
  params: z.object({
    name: Name,
    project: z.string().trim().max(64).optional(),
    group_id: z
      .guid()
      .toLowerCase()
      .optional()
      .describe("Draw on this group's pool; you must be an active member"),
    ...LimitParams.shape,
  }),
  result: IssuedKey,
  handler: ({ params: { group_id, ...params }, actor, rooms }) =>
    rooms.keys.create(actor, { ...params, groupId: group_id }),
});

const Changes = z.object({ key_id: GivenId, name: Name.optional(), ...LimitParams.shape });

export const update = defineMethod({
  name: "keys.update",
  summary:
    "Rename one of your API keys or change its limits, at once; null takes a limit away, what is left out stays",
  auth: "jwt",
  params: Changes,
  result: Key,
  handler: ({ params: { key_id, ...changes }, actor, rooms }) =>
    rooms.keys.update(actor.userId, key_id, changes),
});

export const rotate = defineMethod({
  name: "keys.rotate",
  summary: "Give one of your API keys another secret; the old one stops working at once, the rest stays",
  auth: "jwt",
  params: z.object({ key_id: GivenId }),
  result: IssuedKey,
  handler: ({ params, actor, rooms }) => rooms.keys.rotate(actor, actor.userId, params.key_id),
});

export const revoke = defineMethod({
  name: "keys.revoke",
  summary: "Revoke one of your API keys; it stops working at once",
  auth: "jwt",
  params: z.object({ key_id: GivenId }),
  handler: ({ params, actor, rooms }) => rooms.keys.revoke(actor.userId, params.key_id),
});

const OF_OTHERS = { auth: "admin", hint: "other people's keys are for administrators" } as const;

export const listOfUser = defineMethod({
  name: "users.keys.list",
  summary: "Somebody's API keys, as keys.list shows them to their owner",
  ...OF_OTHERS,
  params: z.object({ user_id: GivenId }),
  result: ListedKeys,
  handler: ({ params, rooms }) => rooms.keys.list(params.user_id),
});

export const updateOfUser = defineMethod({
  name: "users.keys.update",
  summary: "Rename anybody's API key or change its limits, as keys.update",
  ...OF_OTHERS,
  params: Changes,
  result: Key,
  handler: ({ params: { key_id, ...changes }, rooms }) => rooms.keys.update(null, key_id, changes),
});

export const getUser = defineMethod({
  name: "users.get",
  summary: "Somebody's points, groups and sign-ins",
  ...OF_OTHERS,
  params: z.object({ user_id: GivenId }),
  result: z.object({
    balance: z.int().describe("Points in the wallet"),
    groups: z.array(z.object({ id: z.guid(), name: z.string(), my_role: z.string().nullable() })),
    sessions: z.array(SignedInSession),
  }),
  handler: async ({ params: { user_id: userId }, actor, rooms }) => ({
    balance: (await rooms.ledger.balance({ type: "user", id: userId })).balance,
    groups: await rooms.groups.list({ ...actor, userId }, {}),
    sessions: await rooms.accounts.sessions(userId),
  }),
});

export const rotateOfUser = defineMethod({
  name: "users.keys.rotate",
  summary: "Give anybody's API key another secret, as keys.rotate",
  ...OF_OTHERS,
  params: z.object({ key_id: GivenId }),
  result: IssuedKey,
  handler: ({ params, actor, rooms }) => rooms.keys.rotate(actor, null, params.key_id),
});

export const revokeOfUser = defineMethod({
  name: "users.keys.revoke",
  summary: "Revoke anybody's API key; it stops working at once",
  ...OF_OTHERS,
  params: z.object({ key_id: GivenId }),
  handler: ({ params, rooms }) => rooms.keys.revoke(null, params.key_id),
});

const CAPTURE_DAYS_MAX = 30;
const ADMIN = { auth: "admin", hint: "capturing prompts is for administrators" } as const;

export const setCapture = defineMethod({
  name: "keys.capture.set",
  summary: "Capture the prompts and answers of a key's chats for some days, or stop; its owner sees that",
  ...ADMIN,
  params: z.object({
    key_id: GivenId,
    days: z.int().min(1).max(CAPTURE_DAYS_MAX).nullable().describe("Null: stop"),
    forget: z.boolean().default(false).describe("Delete what was captured of it so far"),
  }),
  result: z.object({ capture_until: Timestamp.nullable(), forgotten: z.int() }),
  handler: async ({ params: { key_id, days, forget }, rooms }) => ({
    ...(await rooms.keys.setCapture(key_id, days)),
    forgotten: forget ? await rooms.captures.forget(key_id) : 0,
  }),
});

export const CapturedKeys = z.array(
  z.object({
    key_id: z.uuid(),
    name: z.string(),
    key_prefix: z.string(),
    user_email: z.string(),
    capture_until: Timestamp,
  }),
);

export const listCapture = defineMethod({
  name: "keys.capture.list",
  summary: "Keys whose prompts are captured now",
  ...ADMIN,
  result: CapturedKeys,
  handler: ({ rooms }) => rooms.keys.captured(),
});
