import { z } from "zod";
import { defineMethod, GivenId, NoParams, Ok, ok, Timestamp } from "../../kernel/method.ts";

const Key = z.object({
  id: z.uuid(),
  name: z.string(),
  key_prefix: z.string().describe("First 8 characters of the key's uuid; usage rows carry it as api_key_id"),
  project: z.string(),
  group_id: z.guid().nullable().describe("The group whose pool and limits apply, if any"),
  created_at: Timestamp,
});

export const list = defineMethod({
  name: "keys.list",
  summary: "Your API keys, newest first, without their secrets",
  auth: "jwt",
  params: NoParams,
  result: z.array(Key.extend({ active: z.boolean(), revoked_at: Timestamp.nullable() })),
  handler: ({ actor, rooms }) => rooms.keys.list(actor),
});

export const create = defineMethod({
  name: "keys.create",
  summary: "Issue an API key; the secret is shown once",
  auth: "jwt",
  params: z.object({
    name: z.string().trim().min(1).max(80),
    project: z.string().trim().max(64).optional(),
    group_id: z
      .guid()
      .toLowerCase()
      .optional()
      .describe("Draw on this group's pool; you must be an active member"),
  }),
  result: Key.extend({ key: z.string().describe("The secret: service-<uuid>. It cannot be shown again") }),
  handler: ({ params, actor, rooms }) =>
    rooms.keys.create(actor, { name: params.name, project: params.project, groupId: params.group_id }),
});

export const revoke = defineMethod({
  name: "keys.revoke",
  summary: "Revoke one of your API keys; it stops working at once",
  auth: "jwt",
  params: z.object({ key_id: GivenId }),
  result: Ok,
  handler: async ({ params, actor, rooms }) => {
    await rooms.keys.revoke(actor, params.key_id);
    return ok;
  },
});
