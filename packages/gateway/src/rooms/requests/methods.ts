import { z } from "zod";
import { defineMethod, GivenId, Timestamp, WholeNumber } from "../../kernel/method.ts";
import { methods as usage } from "../usage/index.ts";
import { OUTCOMES } from "./filter.ts";
import { ASKER_KINDS } from "./store.ts";
import { RecordView } from "./view.ts";

const Name = z.string().min(1).max(256);
const Instant = z.iso.datetime({ offset: true });

const Which = z.object({
  everyone: z.boolean().optional().describe("Not only your own: for administrators"),
  group_id: GivenId.optional().describe("Those of a group's keys: for its admins"),
  user_id: GivenId.optional().describe("With `everyone` or `group_id`: only this person's"),
  key_id: GivenId.optional(),
  project: z.string().trim().min(1).max(64).optional(),
  ref_id: z.string().trim().min(1).max(64).optional().describe("The reference that it was tagged with"),
  surface: Name.optional().describe("The path or method that was called"),
  model: Name.optional().describe("The model that served, or would have"),
  backend: Name.optional(),
  code: Name.optional().describe("Error code"),
  outcome: z.enum(OUTCOMES).optional().describe("refused: 4xx; failed: 5xx; left: the client disconnected"),
});
const Period = Which.extend({ since: Instant.optional(), until: Instant.optional().describe("Exclusive") });
export type Wanted = z.output<typeof Period>;

const READER = { auth: "jwt", role: "administrator for everyone's, group admin for a group's" } as const;

export const list = defineMethod({
  name: "requests.list",
  summary: "Requests, answered or not, newest first",
  ...READER,
  params: Period.extend({
    cursor: GivenId.optional().describe("`next_cursor` of the page before"),
    limit: WholeNumber.optional().describe("Default 50; values outside 1-500 are brought into it"),
  }),
  result: z.object({ records: z.array(RecordView), next_cursor: z.uuid().nullable() }),
  handler: ({ params, actor, rooms }) => rooms.requests.list(actor, params),
});

export const get = defineMethod({
  name: "requests.get",
  summary: "One request by its id, as `x-request-id` said it",
  ...READER,
  params: z.object({ id: GivenId }),
  result: RecordView.extend({
    captured: z
      .object({
        asked: z
          .record(z.string(), z.unknown())
          .describe("The request's messages and parameters; long ones are cut"),
        answered: z.record(z.string(), z.unknown()).nullable(),
      })
      .nullable()
      .describe(
        "Only where an administrator had the key's prompts captured; for its owner and administrators",
      ),
  }),
  handler: ({ params, actor, rooms }) => rooms.requests.get(actor, params.id),
});

const Times = z.object({ p50_ms: z.number().nullable(), p95_ms: z.number().nullable() });
const Counts = z.object({ ok: z.int(), refused: z.int(), failed: z.int(), left: z.int() });
const Figures = Counts.extend({
  ...usage.Sums.omit({ unpriced: true }).shape,
  first_token: Times.describe("Of answered ones; read from a histogram, so approximate"),
  duration: Times,
});
const Groups = z.array(Figures.extend({ name: z.string().nullable() })).describe("The most frequent first");

export const StatsParams = Period.extend({
  since: Instant.optional().describe("Default: 24 hours before `until`"),
  by: z.enum(ASKER_KINDS).optional().describe("Also who asked most by key, user, …, which takes longest"),
});

export const stats = defineMethod({
  name: "requests.stats",
  summary: "How many requests there were, how they ended and how long they took, with the period before",
  ...READER,
  params: StatsParams,
  result: z.object({
    since: Timestamp.describe("The period as it was counted: in whole bins"),
    until: Timestamp,
    bin_seconds: z.int(),
    bins: z.array(Counts.extend({ at: Timestamp })),
    totals: Figures,
    before: Figures.describe("Of as long a period before"),
    surfaces: Groups,
    models: Groups,
    backends: Groups,
    codes: Groups,
    askers: z
      .array(
        z.object({
          id: z.string().nullable().describe("Null: without a key, group, …, or nobody that is known"),
          name: z.string().nullable().describe("A user's is the email"),
          requests: z.int(),
          unanswered: z.int(),
          cost_usd: z.number(),
        }),
      )
      .describe("The 20 with the most requests; empty without `by`"),
  }),
  handler: ({ params, actor, rooms }) => rooms.requests.stats(actor, params),
});

export const watch = defineMethod({
  name: "requests.watch",
  summary: "Follow requests as they end; call it again with its stream_id before it expires",
  ...READER,
  notifies: ["requests.ended"],
  params: Which.extend({ stream_id: GivenId.optional().describe("To renew, with other filters if wanted") }),
  result: z.object({
    stream_id: z.uuid().describe("Session of GET /api/rpc/events"),
    renew_after_seconds: z.int(),
  }),
  handler: ({ params, actor, rooms }) => rooms.requests.watch(actor, params),
});
