import { z } from "zod";
import { Timestamp } from "../../kernel/method.ts";
import { defineRoute } from "../../kernel/route.ts";
import { QUERY_ERRORS, QueryBody } from "./query-params.ts";

const BODY_BYTES_MAX = 256 * 1024;

const Totals = z.object({
  requests: z.int(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
  cost_usd: z.number().describe("Sum of the costs; rows without one add nothing"),
});

export const QueryResult = z.object({
  totals: Totals,
  groups: z.array(Totals.extend({ key: z.string().nullable() })).optional(),
  groups_truncated: z.literal(true).optional().describe("Present when there are more than 10000 groups"),
  records: z
    .array(
      z.object({
        id: z.uuid(),
        ref_id: z.string().nullable(),
        api_key_id: z.string(),
        model: z.string(),
        backend: z.string(),
        prompt_tokens: z.int(),
        completion_tokens: z.int(),
        total_tokens: z.int(),
        cost: z.number().nullable(),
        created_at: Timestamp,
      }),
    )
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
