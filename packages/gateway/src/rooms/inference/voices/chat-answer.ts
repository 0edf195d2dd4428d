import { newCallId } from "../../../kernel/ids.ts";
import { isObject, textOf } from "../../../kernel/json.ts";
import type { WholeAnswer } from "../call/answer.ts";
import type { ReportedUsage } from "../call/usage-tail.ts";
import { argumentsText } from "../stream/chat-meter.ts";

/** Token counts of one answer, which each API reports under its own names. */
export interface TokenCounts {
  prompt: number;
  /** Prompt tokens read from and written to the upstream's cache. */
  cached: number;
  cacheWritten: number;
  completion: number;
  reasoning: number;
}

const count = (value: unknown): number =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.floor(value) : 0;

/** A part, capped at the whole. */
const partOf = (whole: number, value: unknown): number => Math.min(whole, count(value));

const details = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});

/** The settled counts, with the details from the upstream's report: cached and reasoning tokens. */
export function tokenCounts(
  settled: ReportedUsage | null,
  reported: Record<string, unknown> | null = null,
): TokenCounts {
  const { promptTokens = 0, completionTokens = 0 } = settled ?? {};
  const prompt = details(reported?.prompt_tokens_details);
  return {
    prompt: promptTokens,
    cached: partOf(promptTokens, prompt.cached_tokens),
    cacheWritten: partOf(promptTokens, prompt.cache_write_tokens),
    completion: completionTokens,
    reasoning: partOf(completionTokens, details(reported?.completion_tokens_details).reasoning_tokens),
  };
}

/** Why the model stopped. `stopSequence` is known only if the upstream reports it (vLLM, SGLang). */
export interface Finish {
  reason: string;
  stopSequence: string | null;
}

type Ended = Partial<Record<"finish_reason" | "stop_reason" | "matched_stop", unknown>>;

export function finishOf({ finish_reason: reason, stop_reason, matched_stop }: Ended): Finish | null {
  if (typeof reason !== "string") return null;
  const stop = stop_reason ?? matched_stop;
  return { reason, stopSequence: typeof stop === "string" ? stop : null };
}

/** Upstreams use either field name. */
export const reasoningOf = (message: Record<string, unknown>): string =>
  textOf(message.reasoning_content ?? message.reasoning);

export interface AnsweredCall {
  id: string;
  name: string;
  arguments: string;
}

export interface ChatAnswer {
  model: string;
  createdSeconds: number;
  reasoning: string;
  text: string;
  refusal: string;
  calls: AnsweredCall[];
  finish: Finish;
  usage: TokenCounts;
}

export function readAnswer(whole: WholeAnswer): ChatAnswer {
  const body = whole.object();
  const { owed } = whole.usage;
  const choice = details(Array.isArray(body.choices) ? body.choices[0] : null);
  const message = typeof choice.text === "string" ? { content: choice.text } : details(choice.message);
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls.filter(isObject) : [];
  return {
    model: textOf(body.model) || whole.head.model,
    createdSeconds: count(body.created) || whole.head.created,
    reasoning: reasoningOf(message),
    text: textOf(message.content),
    refusal: textOf(message.refusal),
    calls: calls.map((call) => ({
      id: textOf(call.id) || newCallId(),
      name: textOf(details(call.function).name),
      arguments: argumentsText(details(call.function).arguments) || "{}",
    })),
    finish: finishOf(choice) ?? { reason: "stop", stopSequence: null },
    usage: tokenCounts(owed, details(body.usage)),
  };
}
