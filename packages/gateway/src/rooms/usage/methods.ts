import { z } from "zod";
import { defineMethod, Timestamp } from "../../kernel/method.ts";

export const list = defineMethod({
  name: "usage.list",
  summary: "Your requests, newest first; with `project` only those of the project's keys",
  auth: "jwt",
  params: z.object({
    limit: z.int().optional().describe("Default 50; values outside 1-200 are brought into it"),
    offset: z.int().optional().describe("Default 0"),
    project: z.string().max(64).optional(),
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
      }),
    ),
    total: z.int(),
    limit: z.int(),
    offset: z.int(),
    project: z.string().nullable(),
  }),
  handler: ({ params, actor, rooms }) => rooms.usage.list(actor, params),
});
