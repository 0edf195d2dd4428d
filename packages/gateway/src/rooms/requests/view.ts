import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { timeOfId } from "../../kernel/ids.ts";
import { Timestamp } from "../../kernel/method.ts";
import type { ListedRecord } from "./block-store.ts";
import { OUTCOMES } from "./filter.ts";
import { outcomeOf } from "./stats.ts";

const NANO_PER_USD = 1e9;

/** One request as people see it. */
export const RecordView = z.object({
  id: z.uuid().describe("The request id, as `x-request-id` said it"),
  at: Timestamp,
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
  tokens_per_second: z.number().nullable().describe("Of the answer, after its first token"),
  estimated: z.boolean().describe("The upstream reported no usage; the tokens are an estimate"),
  cost_usd: z.number().nullable(),
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

export function viewOf(row: ListedRecord): z.input<typeof RecordView> {
  const { attempts, queueMs, firstTokenMs, durationMs, promptTokens, completionTokens, detail } = row;
  const { id, surface, status, code, model, backend } = row;
  const { user_id, user_email, key_id, key_prefix, key_name, group_id, project } = row;
  const answeringMs = durationMs - (firstTokenMs ?? queueMs);
  return {
    id,
    at: isoTime(timeOfId(id)),
    surface,
    outcome: outcomeOf(status),
    status,
    code: code || null,
    message: detail?.message ?? null,
    model: model || null,
    model_asked: detail?.asked ?? null,
    backend: backend || null,
    reason: row.reason,
    attempts,
    failed_attempts: detail?.failed ?? [],
    queue_ms: queueMs,
    first_token_ms: firstTokenMs,
    duration_ms: durationMs,
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    tokens_per_second:
      completionTokens > 0 && answeringMs > 0
        ? Math.round((completionTokens * 10_000) / answeringMs) / 10
        : null,
    estimated: detail?.estimated ?? false,
    cost_usd: row.costNanoUsd === null ? null : row.costNanoUsd / NANO_PER_USD,
    user_id,
    user_email,
    key_id,
    key_prefix,
    key_name,
    group_id,
    project,
    ref_id: detail?.ref ?? null,
    client_ip: detail?.ip ?? null,
  };
}
