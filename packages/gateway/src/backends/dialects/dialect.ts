import { isObject } from "../../kernel/json.ts";
import type { AuthName, DialectName, ModelInfo, NativeDialect } from "../contract.ts";
import type { StreamConverter } from "../shared/converted-stream.ts";
import type { AssistantTurn, ChatCall } from "./chat-turns.ts";

export interface ChatUsage {
  prompt_tokens: unknown;
  completion_tokens: unknown;
  total_tokens: unknown;
  prompt_tokens_details?: unknown;
  completion_tokens_details?: unknown;
  /** What the upstream itself asks for the request, in dollars. */
  cost?: unknown;
  /** The tier that answered, where it has rates of its own. */
  service_tier?: unknown;
}

const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;

/** Counts of a stream are running totals: of each the largest stands. What is no count stays, so that it is seen. */
export function largerCounts(before: object, now: object): Record<string, unknown> {
  const counts: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(now)) {
    const known = counts[name];
    if (value !== null && !(isCount(value) && isCount(known) && value < known)) counts[name] = value;
  }
  return counts;
}

/** The sum of those that are there; what is no count stays what it is, so that it is seen. */
export function sumOf(...counts: unknown[]): unknown {
  const given = counts.filter((count) => count !== undefined && count !== null);
  if (given.length === 0) return undefined;
  return given.find((count) => !isCount(count)) ?? given.reduce((a, b) => (a as number) + (b as number));
}

/** Figures are passed on as they were reported: the meter decides which of them can be true. */
export function chatUsageOf(usage: Omit<ChatUsage, "total_tokens">): ChatUsage | null {
  const { prompt_tokens: prompt, completion_tokens: completion, cost, service_tier } = usage;
  if (prompt == null && completion == null) return null;
  const prompts = present(usage.prompt_tokens_details);
  const completions = present(usage.completion_tokens_details);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt == null || completion == null ? undefined : sumOf(prompt, completion),
    ...(prompts && { prompt_tokens_details: prompts }),
    ...(completions && { completion_tokens_details: completions }),
    ...(cost !== undefined && { cost }),
    ...(service_tier === "flex" && { service_tier }),
  };
}

function present(fields: unknown): Record<string, unknown> | null {
  const given = Object.entries(isObject(fields) ? fields : {}).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return given.length > 0 ? Object.fromEntries(given) : null;
}

export interface ChatRequestOptions {
  model: string;
  stream: boolean;
  /** The answer that a turn of the history repeats, in the dialect's own form; null when it is not known. */
  kept(turn: AssistantTurn): unknown[] | null;
  wantsThoughts?: boolean;
}

export interface ChatAnswer {
  text: string;
  reasoning: string;
  refusal: string;
  calls: ChatCall[];
  finishReason: string;
  stopSequence?: unknown;
  usage: ChatUsage | null;
  images?: string[];
  logprobs?: unknown;
  /** The answer in the dialect's own form, where the chat form cannot hold all that has to be sent back; or null. */
  content: unknown[] | null;
}

export interface Translation {
  request(body: Record<string, unknown>, options: ChatRequestOptions): Record<string, unknown>;
  answer(body: Record<string, unknown>): ChatAnswer;
  stream(): StreamConverter;
  /** The limit of a chat that names none, where the API wants one. */
  usualOutputTokens?(model: string): number;
}

export interface Dialect {
  name: DialectName;
  /** Where its paths begin, from the URL as registered. */
  base(url: string): string;
  path(call: { model: string; stream: boolean }): string;
  auth: AuthName;
  headers?: Readonly<Record<string, string>>;
  /** The listing below the base; `next` is the page behind an answer, if there is one. */
  listing: {
    path: string;
    models(body: unknown): ModelInfo[] | null;
    next?(body: unknown): string | null;
  };
  /** Absent: the upstream speaks what the gateway speaks inside. */
  translation?: Translation;
  /** How requests pass as they are; absent where the gateway's own path does that. */
  native?: Omit<NativeDialect, "post">;
}
