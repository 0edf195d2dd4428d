import { newCallId } from "../../../kernel/ids.ts";
import { isObject, textOf } from "../../../kernel/json.ts";
import { BackendError } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import type { StreamConverter } from "../../shared/converted-stream.ts";
import type { ChatCall } from "../chat-turns.ts";
import { type ChatAnswer, type ChatUsage, chatUsageOf, largerCounts, sumOf } from "../dialect.ts";
import type { Part } from "./request.ts";

const FILTERED: ReadonlySet<unknown> = new Set(
  (
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT " +
    "IMAGE_RECITATION"
  ).split(" "),
);

const candidateOf = ({ candidates }: Record<string, unknown>): Record<string, unknown> =>
  Array.isArray(candidates) && isObject(candidates[0]) ? candidates[0] : {};
const partsOf = ({ content }: Record<string, unknown>): Part[] =>
  isObject(content) && Array.isArray(content.parts) ? content.parts.filter(isObject) : [];

/** Some models give their calls no id; the one that the client is told is sent back with the call's result. */
function callOf(part: Part): ChatCall | null {
  const { functionCall: call } = part;
  if (!isObject(call)) return null;
  call.id = textOf(call.id) || newCallId();
  return { id: call.id as string, name: textOf(call.name), arguments: JSON.stringify(call.args ?? {}) };
}

function imageOf({ inlineData: data }: Part): string | null {
  return isObject(data) ? `data:${textOf(data.mimeType)};base64,${textOf(data.data)}` : null;
}

function finishOf(body: Record<string, unknown>, reason: unknown, hasCalls: boolean): string {
  const { promptFeedback } = body;
  if (FILTERED.has(reason) || (isObject(promptFeedback) && promptFeedback.blockReason))
    return "content_filter";
  if (reason === "MAX_TOKENS") return "length";
  return hasCalls ? "tool_calls" : "stop";
}

const tokensOf = (details: unknown, modality: string): unknown =>
  Array.isArray(details)
    ? details.find((part) => isObject(part) && part.modality === modality)?.tokenCount
    : undefined;

/** Gemini counts thoughts beside the answer, and tools' prompts beside the prompt; both are billed. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const { promptTokenCount, toolUsePromptTokenCount, candidatesTokenCount, thoughtsTokenCount } = usage;
  return chatUsageOf({
    prompt_tokens: promptTokenCount == null ? undefined : sumOf(promptTokenCount, toolUsePromptTokenCount),
    completion_tokens: sumOf(candidatesTokenCount, thoughtsTokenCount),
    prompt_tokens_details: {
      cached_tokens: usage.cachedContentTokenCount,
      audio_tokens: tokensOf(usage.promptTokensDetails, "AUDIO"),
      image_tokens: tokensOf(usage.promptTokensDetails, "IMAGE"),
    },
    completion_tokens_details: {
      reasoning_tokens: thoughtsTokenCount,
      audio_tokens: tokensOf(usage.candidatesTokensDetails, "AUDIO"),
      image_tokens: tokensOf(usage.candidatesTokensDetails, "IMAGE"),
    },
    service_tier: usage.serviceTier,
  });
}

export function geminiAnswer(body: Record<string, unknown>): ChatAnswer {
  const candidate = candidateOf(body);
  if (!Array.isArray(body.candidates) && !isObject(body.promptFeedback))
    throw new BackendError("transport", "the upstream answered without `candidates`");
  const parts = partsOf(candidate);
  const calls = parts.flatMap((part) => callOf(part) ?? []);
  const images = parts.flatMap((part) => imageOf(part) ?? []);
  return {
    text: parts.map((part) => (part.thought === true ? "" : textOf(part.text))).join(""),
    reasoning: parts.map((part) => (part.thought === true ? textOf(part.text) : "")).join(""),
    refusal: "",
    calls,
    ...(images.length > 0 && { images }),
    finishReason: finishOf(body, candidate.finishReason, calls.length > 0),
    usage: chatUsage(body.usageMetadata),
    content: parts.some(({ thoughtSignature }) => thoughtSignature !== undefined) ? parts : null,
  };
}

/** The chunks of `:streamGenerateContent`. No event ends the stream: the last finish does. */
export class GeminiStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  readonly #parts: Part[] = [];
  #callCount = 0;
  #usage: Record<string, unknown> = {};

  failureOf({ error }: Record<string, unknown>): BackendError | null {
    if (!isObject(error)) return null;
    return new BackendError(
      "upstream",
      textOf(error.message) || "the upstream failed",
      Number(error.code) || 500,
    );
  }

  deltas(chunk: Record<string, unknown>): ChatDelta[] {
    const candidate = candidateOf(chunk);
    const deltas = partsOf(candidate).flatMap((part) => this.#delta(part));
    if (isObject(chunk.usageMetadata)) this.#usage = largerCounts(this.#usage, chunk.usageMetadata);
    // Text without a count: the last count was of what came before.
    else if (partsOf(candidate).length > 0) this.#usage.candidatesTokenCount = undefined;
    const isBlocked = isObject(chunk.promptFeedback) && chunk.promptFeedback.blockReason !== undefined;
    if (candidate.finishReason === undefined && !isBlocked) return deltas;
    const candidates = [{ ...candidate, content: { role: "model", parts: joined(this.#parts) } }];
    this.answer = geminiAnswer({ ...chunk, usageMetadata: this.#usage, candidates });
    return deltas;
  }

  #delta(part: Part): ChatDelta[] {
    this.#parts.push(part);
    const call = callOf(part);
    if (call) return [{ tool_calls: [openedCall(this.#callCount++, call)] }];
    const image = imageOf(part);
    if (image) return [{ images: [{ type: "image_url", image_url: { url: image } }] }];
    const words = textOf(part.text);
    if (words === "") return [];
    return [part.thought === true ? { reasoning_content: words } : { content: words }];
  }
}

/** The pieces of one text as one part, as a whole answer has them. */
function joined(parts: readonly Part[]): Part[] {
  const whole: Part[] = [];
  for (const part of parts) {
    const last = whole.at(-1);
    const isSame =
      last !== undefined &&
      typeof last.text === "string" &&
      typeof part.text === "string" &&
      last.thought === part.thought &&
      last.thoughtSignature === undefined;
    if (isSame) whole[whole.length - 1] = { ...last, ...part, text: `${last.text}${part.text}` };
    else whole.push(part);
  }
  return whole;
}
