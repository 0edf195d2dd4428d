import { z } from "zod";
import { Timestamp } from "../../kernel/method.ts";
import { defineRoute } from "../../kernel/route.ts";
import { QUERY_ERRORS, QueryBody } from "./query.ts";

const BODY_BYTES_MAX = 256 * 1024;

const Totals = z.object({
  requests: z.int(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
  cost_usd: z.number().describe("Sum of the costs; rows without one add nothing"),
});

export const Row = z.object({
  id: z.uuid(),
  model: z.string(),
  backend: z.string(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
  cost: z.number().nullable().describe("USD; null when the model has no price"),
  unpriced: z.boolean().describe("It should have one; false for what runs on own hardware"),
  created_at: Timestamp,
  ref_id: z.string().nullable(),
  api_key_id: z.string().describe("The key's prefix, or jwt-<user-uuid> for a signed-in person"),
  project: z.string().nullable().describe("Null for what was not done with a key"),
  points: z.int().nullable().describe("What points paid; null when it counts against the tier's quota"),
  account_type: z.enum(["user", "group"]).nullable().describe("Whose points paid"),
  estimated: z.boolean().describe("The upstream reported no usage; the tokens are an estimate"),
});

export const QueryResult = z.object({
  totals: Totals,
  groups: z.array(Totals.extend({ key: z.string().nullable() })).optional(),
  groups_truncated: z.literal(true).optional().describe("Present when there are more than 10000 groups"),
  records: z
    .array(Row.omit({ unpriced: true, project: true, points: true, account_type: true, estimated: true }))
    .optional(),
  records_total: z.int().optional(),
  limit: z.int().optional(),
  offset: z.int().optional(),
});

export const query = defineRoute({
  method: "POST",
  path: "/api/admin/usage/query",
  summary: "Sums of usage over a period, grouped if asked, with the rows if asked",
  auth: "admin_token",
  audit: false,
  bodyBytesMax: BODY_BYTES_MAX,
  body: QueryBody,
  invalid: QUERY_ERRORS,
  response: QueryResult,
  handler: ({ body, rooms }) => rooms.usage.query(body),
});
