import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { Timestamp } from "../../kernel/method.ts";
import type { RequestLine } from "../../kernel/request-row.ts";
import { columnsOf, NANO_PER_USD } from "../usage/index.ts";
import { OUTCOMES, outcomeOf } from "./filter.ts";

export const RecordView = z.object({
  id: z.uuid().describe("The request id, as `x-request-id` said it"),
  at: Timestamp.describe("When it came; lists go by when requests ended"),
  surface: z.string().describe("The path or method that was called"),
  outcome: z.enum(OUTCOMES),
  status: z.int().describe("HTTP status, or what it would have been; 499: the client disconnected"),
  code: z.string().nullable().describe("Why it was not answered"),
  message: z.string().nullable(),
  model: z.string().nullable(),
  model_asked: z.string().nullable().describe("As the client wrote it, where another one served"),
  backend: z.string().nullable().describe("The backend that was asked last"),
  reason: z.string().nullable().describe("Why that backend"),
  attempts: z.int(),
  failed_attempts: z.array(
    z.object({
      backend: z.string(),
      model: z.string(),
      from_ms: z.number(),
      to_ms: z.number(),
      message: z.string().describe("The upstream's words, without secrets"),
    }),
  ),
  queue_ms: z.number().describe("Until it was first sent"),
  first_token_ms: z.number().nullable().describe("Of a streamed answer"),
  duration_ms: z.number(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  cached_tokens: z.int().describe("Of the prompt: read from the upstream's cache"),
  cache_write_tokens: z.int().describe("Of the prompt: written to it"),
  reasoning_tokens: z.int().describe("Of the completion"),
  cache_saved_usd: z.number().describe("What it would have cost more without the cache"),
  tokens_per_second: z.number().nullable().describe("Of the answer, after its first token"),
  estimated: z.boolean().describe("The upstream reported no usage; the tokens are an estimate"),
  cost_usd: z.number().nullable(),
  unpriced: z.boolean().describe("Its model should have a price; false for what runs on own hardware"),
  user_id: z.string().nullable(),
  user_email: z.string().nullable(),
  key_id: z.string().nullable(),
  key_prefix: z.string().nullable(),
  key_name: z.string().nullable(),
  group_id: z.string().nullable(),
  project: z.string().nullable(),
  ref_id: z.string().nullable(),
  client_ip: z.string().nullable().describe("Of a refusal"),
});

/** As the database has it, with the names of its key and user. */
export interface ListedRow
  extends Omit<
    z.output<typeof RecordView>,
    "at" | "outcome" | "failed_attempts" | "tokens_per_second" | "cost_usd" | "cache_saved_usd" | "key_prefix"
  > {
  ended_ms: number;
  api_key_id: string | null;
  failed_attempts: string | null;
  cost_nano_usd: number | null;
  cache_saved_nano_usd: number;
}

export function viewOf(row: ListedRow): z.input<typeof RecordView> {
  const { ended_ms, duration_ms, first_token_ms, queue_ms, completion_tokens, key_id, api_key_id } = row;
  const answeringMs = duration_ms - (first_token_ms ?? queue_ms);
  return {
    ...row,
    at: isoTime(ended_ms - duration_ms),
    outcome: outcomeOf(row.status),
    failed_attempts: row.failed_attempts === null ? [] : JSON.parse(row.failed_attempts),
    tokens_per_second:
      completion_tokens > 0 && answeringMs > 0
        ? Math.round((completion_tokens * 10_000) / answeringMs) / 10
        : null,
    cost_usd: row.cost_nano_usd === null ? null : row.cost_nano_usd / NANO_PER_USD,
    cache_saved_usd: row.cache_saved_nano_usd / NANO_PER_USD,
    key_prefix: key_id === null ? null : api_key_id,
  };
}

/** A line as a listed row. Only the database knows the names, so they are null. */
export function listedOf(line: RequestLine): ListedRow {
  const columns = columnsOf({ ...line, points: null, accountType: null });
  return { ...columns, user_email: null, key_name: null } as ListedRow;
}
