import { membersOf, tokenCount, type UsageParts } from "../../../kernel/usage-parts.ts";

const ofModality = (details: unknown, modality: string): number | undefined =>
  Array.isArray(details)
    ? tokenCount(details.map(membersOf).find((part) => part.modality === modality)?.tokenCount)
    : undefined;

/** `usageMetadata`; of a stream, the last one. Thoughts are counted beside the candidates. Null where nothing is. */
export function geminiUsage(value: unknown): UsageParts | null {
  const usage = membersOf(value);
  const prompt = tokenCount(usage.promptTokenCount);
  if (prompt === undefined) return null;
  const reasoningTokens = tokenCount(usage.thoughtsTokenCount) ?? 0;
  return {
    promptTokens: prompt + (tokenCount(usage.toolUsePromptTokenCount) ?? 0),
    completionTokens: (tokenCount(usage.candidatesTokenCount) ?? 0) + reasoningTokens,
    cachedTokens: tokenCount(usage.cachedContentTokenCount),
    audioInputTokens: ofModality(usage.promptTokensDetails, "AUDIO"),
    imageInputTokens: ofModality(usage.promptTokensDetails, "IMAGE"),
    reasoningTokens,
    audioOutputTokens: ofModality(usage.candidatesTokensDetails, "AUDIO"),
    imageOutputTokens: ofModality(usage.candidatesTokensDetails, "IMAGE"),
  };
}
