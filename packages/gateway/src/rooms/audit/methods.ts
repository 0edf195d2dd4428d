import { z } from "zod";
import { defineMethod, GivenId, Timestamp, wholeNumber } from "../../kernel/method.ts";

const LIMIT = { fallback: 50, most: 200 };
const TEXT_LENGTH_MAX = 256;
const Text = z.string().trim().min(1).max(TEXT_LENGTH_MAX);

export const Filter = z.object({
  cursor: GivenId.optional().describe("`next_cursor` of the page before"),
  actor: Text.optional().describe("Part of an email, or a user id"),
  action: Text.optional().describe("A method or route, or how it begins: `keys.`, `POST /api/admin`"),
  target: Text.optional(),
  since: z.iso.datetime({ offset: true }).optional(),
  until: z.iso.datetime({ offset: true }).optional().describe("Not included"),
});

export const list = defineMethod({
  name: "audit.list",
  summary: "Who changed what, newest first; for administrators",
  auth: "admin",
  params: Filter.extend({
    limit: wholeNumber().optional().describe(`1 to ${LIMIT.most}, otherwise ${LIMIT.fallback}`),
  }),
  result: z.object({
    entries: z.array(
      z.object({
        id: z.uuid(),
        at: Timestamp,
        action: z.string(),
        actor_id: z.guid().nullable(),
        actor: z.string().describe("An email, `admin token` or `anonymous`"),
        ip: z.string(),
        user_agent: z.string().nullable(),
        target: z.string().nullable().describe("Whom or what it was done to"),
        target_name: z.string().nullable().describe("Of a user, a key or a group that is still there"),
        details: z
          .record(z.string(), z.unknown())
          .describe("What was asked for and, in `before`, what was there, without secrets"),
        request_id: z.string(),
      }),
    ),
    next_cursor: z.uuid().nullable(),
  }),
  handler: ({ params: { limit = LIMIT.fallback, ...filter }, rooms }) =>
    rooms.audit.list(filter, Math.min(LIMIT.most, Math.max(1, limit))),
});
