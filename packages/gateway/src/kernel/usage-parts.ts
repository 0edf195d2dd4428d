/** More than any request can have. */
export const REQUEST_TOKENS_MAX = 10_000_000;

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
}
