import { z } from "zod";
import { defineMethod, GivenId, WholeNumber } from "../../kernel/method.ts";
import { Bound, QueryBody } from "./query.ts";
import { QueryResult, Row } from "./routes.ts";
import { SERIES_BY } from "./series.ts";

export const DetailedRow = Row.extend({
  cached_tokens: z.int().describe("Of the prompt: read from the upstream's cache"),
  cache_write_tokens: z.int().describe("Of the prompt: written to it"),
  reasoning_tokens: z.int().describe("Of the completion"),
  cache_saved_usd: z.number().describe("What it would have cost more without the cache"),
});

export const list = defineMethod({
  name: "usage.list",
  summary: "Your requests, newest first; with `project` only those of the project's keys",
  auth: "jwt",
  params: z.object({
    limit: WholeNumber.optional().describe("Default 50; values outside 1-200 are brought into it"),
    offset: WholeNumber.optional().describe("Default 0"),
    project: z.string().trim().max(64).optional().describe("Empty: all rows, as without it"),
  }),
  result: z.object({
    records: z.array(Row),
    total: z.int(),
    limit: z.int(),
    offset: z.int(),
    project: z.string().nullable(),
  }),
  handler: ({ params, actor, rooms }) => rooms.usage.list(actor, params),
});

export const Sums = z.object({
  requests: z.int(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  cost_usd: z.number(),
  cached_tokens: z.int().describe("Of the prompts: read from the upstreams' caches"),
  cache_write_tokens: z.int().describe("Of the prompts: written to them"),
  cache_saved_usd: z.number().describe("What all of it would have cost more without them"),
  unpriced: z.int().nullable().describe("Requests whose model had no price; null where sums do not say"),
});
const Series = Sums.extend({ days: z.array(Sums.extend({ day: z.string() })) });
export const Filter = z.object({
  everyone: z.boolean().optional().describe("Not only your own: for administrators"),
  since: Bound("since").describe("Inclusive: YYYY-MM-DD or an RFC 3339 timestamp"),
  until: Bound("until").describe("Exclusive instant, or a YYYY-MM-DD that is covered whole"),
  project: z.string().trim().max(64).optional(),
  model: z.string().max(128).optional(),
  backend: z.string().max(256).optional().describe("The backend that served it"),
  ref_id: z.string().trim().max(64).optional(),
  api_key_id: z.string().max(64).optional().describe("As rows name it: a key's prefix, or jwt-<user-uuid>"),
  user_id: GivenId.optional().describe("With `everyone`: only this person's"),
  group_id: GivenId.optional().describe("Only what was done with this group's keys"),
});

export const series = defineMethod({
  name: "usage.series",
  summary:
    "Usage by UTC day and by model, backend, source, reference, project, key, user or group, the dearest first",
  auth: "jwt",
  role: "administrator for everyone's",
  params: Filter.extend({ by: z.enum(SERIES_BY) }),
  result: z.object({
    totals: Sums,
    groups: z
      .array(
        Series.extend({
          id: z.string().nullable().describe("Of the user, the group or the key"),
          name: z.string().nullable().describe("A user's is the email"),
        }),
      )
      .describe("At most 50"),
    others: Series.extend({ groups: z.int().describe("How many these are") }).nullable(),
  }),
  handler: ({ params, actor, rooms }) => rooms.usage.series(actor, params),
});

export const records = defineMethod({
  name: "usage.records",
  summary: "Usage rows of a period, newest first",
  auth: "jwt",
  role: "administrator for everyone's",
  params: Filter.extend({
    limit: WholeNumber.optional().describe("Default 50; values outside 1-500 are brought into it"),
    cursor: z.string().max(128).optional().describe("`next_cursor` of the page before"),
  }),
  result: z.object({ records: z.array(DetailedRow), next_cursor: z.string().nullable() }),
  handler: ({ params, actor, rooms }) => rooms.usage.records(actor, params),
});

export const query = defineMethod({
  name: "usage.query",
  summary: "Sums of everyone's usage over a period, grouped if asked, with the rows if asked",
  auth: "admin",
  hint: "everyone's usage is for administrators; usage.list shows your own",
  params: QueryBody,
  result: QueryResult,
  handler: ({ params, rooms }) => rooms.usage.query(params),
});
