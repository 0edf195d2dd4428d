import { isObject } from "./json.ts";

/** More than any request can have. */
export const REQUEST_TOKENS_MAX = 10_000_000;

/** False for figures that no request can have: not whole, below zero, or beyond every model. */
export const isPlausible = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= REQUEST_TOKENS_MAX;

/** Tokens of one request as an upstream reports them. All parts are inside of `promptTokens` and `completionTokens`. */
export interface UsageParts {
  promptTokens: number;
  completionTokens: number;
  cachedTokens?: number;
  /** Written to it, to be kept for five minutes or whatever is usual, and for an hour. */
  cacheWrite5mTokens?: number;
  cacheWrite1hTokens?: number;
  audioInputTokens?: number;
  imageInputTokens?: number;
  reasoningTokens?: number;
  audioOutputTokens?: number;
  imageOutputTokens?: number;
  /** At the rates of batches: in one, or in a tier for those who can wait. */
  isBatch?: boolean;
}

/** Whether the parts fit into their sums. */
export function isConsistent(usage: UsageParts): boolean {
  const { promptTokens, completionTokens, cachedTokens = 0, cacheWrite5mTokens = 0 } = usage;
  const { cacheWrite1hTokens = 0, audioInputTokens = 0, imageInputTokens = 0 } = usage;
  const { reasoningTokens = 0, audioOutputTokens = 0, imageOutputTokens = 0 } = usage;
  return (
    cachedTokens + cacheWrite5mTokens + cacheWrite1hTokens <= promptTokens &&
    audioInputTokens + imageInputTokens <= promptTokens &&
    reasoningTokens + audioOutputTokens + imageOutputTokens <= completionTokens
  );
}

const membersOf = (value: unknown): Record<string, unknown> | null => (isObject(value) ? value : null);

function tokenCount(...values: readonly unknown[]): number | undefined {
  const value = values.find((given) => given !== undefined && given !== null);
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

type Whole = Pick<UsageParts, "promptTokens" | "completionTokens">;

/** The parts of a `usage`, under the names that vendors give them; the sums alone where it has none that can be true. */
export function partsIn(usage: Record<string, unknown>, whole: Whole): UsageParts {
  const prompt = membersOf(
    usage.prompt_tokens_details ??
      usage.prompt_token_details ??
      usage.input_tokens_details ??
      usage.input_token_details,
  );
  const said = membersOf(
    usage.completion_tokens_details ?? usage.output_tokens_details ?? usage.output_token_details,
  );
  // DeepSeek, Moonshot and Mistral have names of their own.
  const cachedTokens = tokenCount(
    prompt?.cached_tokens,
    usage.prompt_cache_hit_tokens,
    usage.cached_tokens,
    usage.num_cached_tokens,
  );
  if (!prompt && !said && cachedTokens === undefined) return whole;
  // DashScope's and vLLM's names are the others.
  const written = tokenCount(
    prompt?.cache_write_tokens,
    prompt?.cache_creation_input_tokens,
    prompt?.created_cache_tokens,
  );
  const hour = tokenCount(prompt?.cache_write_1h_tokens) ?? 0;
  const reasoningTokens = tokenCount(said?.reasoning_tokens);
  const { promptTokens, completionTokens: completion } = whole;
  // xAI counts reasoning beside the completion; its total tells.
  const isApart = reasoningTokens && usage.total_tokens === promptTokens + completion + reasoningTokens;
  const parts = {
    promptTokens,
    completionTokens: isApart ? completion + reasoningTokens : completion,
    cachedTokens,
    cacheWrite5mTokens: written && written - Math.min(hour, written),
    cacheWrite1hTokens: written && Math.min(hour, written),
    audioInputTokens: tokenCount(prompt?.audio_tokens),
    imageInputTokens: tokenCount(prompt?.image_tokens),
    reasoningTokens,
    audioOutputTokens: tokenCount(said?.audio_tokens),
    imageOutputTokens: tokenCount(said?.image_tokens),
  };
  return isConsistent(parts) ? parts : { promptTokens, completionTokens: parts.completionTokens };
}
