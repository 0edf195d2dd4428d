import { z } from "zod";
import { defineMethod, Timestamp, WholeNumber } from "../../kernel/method.ts";
import { QueryBody } from "./query-params.ts";
import { QueryResult } from "./routes.ts";

export const list = defineMethod({
  name: "usage.list",
  summary: "Your requests, newest first; with `project` only those of the project's keys",
  auth: "jwt",
  audit: false,
  params: z.object({
    limit: WholeNumber.optional().describe("Default 50; values outside 1-200 are brought into it"),
    offset: WholeNumber.optional().describe("Default 0"),
    project: z.string().trim().max(64).optional().describe("Empty: all rows, as without it"),
  }),
  result: z.object({
    records: z.array(
      z.object({
        id: z.uuid(),
        model: z.string(),
        backend: z.string(),
        prompt_tokens: z.int(),
        completion_tokens: z.int(),
        total_tokens: z.int(),
        cost: z.number().nullable().describe("USD; null when the model has no price"),
        created_at: Timestamp,
        ref_id: z.string().nullable(),
        api_key_id: z.string().describe("The key's prefix, or jwt-<user-uuid> for a signed-in person"),
        project: z.string().nullable().describe("Null for what was not done with a key"),
        points: z.int().nullable().describe("What points paid; null when it counts against the tier's quota"),
        account_type: z.enum(["user", "group"]).nullable().describe("Whose points paid"),
        estimated: z.boolean().describe("The upstream reported no usage; the tokens are an estimate"),
      }),
    ),
    total: z.int(),
    limit: z.int(),
    offset: z.int(),
    project: z.string().nullable(),
  }),
  handler: ({ params, actor, rooms }) => rooms.usage.list(actor, params),
});

export const query = defineMethod({
  name: "usage.query",
  summary: "Sums of everyone's usage over a period, grouped if asked, with the rows if asked",
  auth: "admin",
  audit: false,
  hint: "everyone's usage is for administrators; usage.list shows your own",
  params: QueryBody,
  result: QueryResult,
  handler: ({ params, rooms }) => rooms.usage.query(params),
});
