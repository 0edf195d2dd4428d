import { newCallId } from "../../../kernel/ids.ts";
import { isObject, membersOf, textOf } from "../../../kernel/json.ts";
import { BackendError, type NativeReader } from "../../contract.ts";
import { type ChatDelta, openedCall } from "../../shared/chat-events.ts";
import type { ChatCall } from "../chat-turns.ts";
import {
  type ChatAnswer,
  type ChatUsage,
  chatUsageOf,
  errorMessage,
  eventText,
  largerCounts,
  type StreamConverter,
  sealed,
  sumOf,
} from "../dialect.ts";
import type { Part } from "./request.ts";

const FILTERED: ReadonlySet<unknown> = new Set(
  (
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT " +
    "IMAGE_RECITATION"
  ).split(" "),
);

type Body = Record<string, unknown>;

const candidatesOf = ({ candidates }: Body): Body[] =>
  Array.isArray(candidates) ? candidates.filter(isObject) : [];
const isBlocked = ({ promptFeedback }: Body): boolean => Boolean(membersOf(promptFeedback).blockReason);
function partsOf({ content }: Body): Part[] {
  const { parts } = membersOf(content);
  return Array.isArray(parts) ? parts.filter(isObject) : [];
}

function requireCandidates(body: Body): void {
  if (!Array.isArray(body.candidates) && !isObject(body.promptFeedback))
    throw new BackendError("transport", "the upstream answered without `candidates`");
}

/** Some models give their calls no id; ours comes back with the call's result. */
function callOf(part: Part): ChatCall | null {
  const { functionCall: call } = part;
  if (!isObject(call)) return null;
  call.id = textOf(call.id) || newCallId();
  return { id: call.id as string, name: textOf(call.name), arguments: JSON.stringify(call.args ?? {}) };
}

function imageOf({ inlineData: data }: Part): string | null {
  return isObject(data) ? `data:${textOf(data.mimeType)};base64,${textOf(data.data)}` : null;
}

function finishOf(body: Body, reason: unknown, hasCalls: boolean): string {
  if (FILTERED.has(reason) || isBlocked(body)) return "content_filter";
  if (reason === "MAX_TOKENS") return "length";
  return hasCalls ? "tool_calls" : "stop";
}

const tokensOf = (details: unknown, modality: string): unknown =>
  Array.isArray(details)
    ? details.find((part) => isObject(part) && part.modality === modality)?.tokenCount
    : undefined;

/** Gemini counts thoughts apart from the answer and tools' prompts apart from the prompt; both are billed. */
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

export function geminiAnswer(body: Body): ChatAnswer {
  requireCandidates(body);
  const [candidate = {}] = candidatesOf(body);
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

/** The chunks of `:streamGenerateContent`. No event ends the stream; the finish reason does. */
export class GeminiStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  readonly #parts: Part[] = [];
  #callCount = 0;
  #usage: Body = {};

  failureOf({ error }: Body): BackendError | null {
    if (!isObject(error)) return null;
    return new BackendError("upstream", errorMessage(error), Number(error.code) || 500);
  }

  deltas(chunk: Body): ChatDelta[] {
    const [candidate = {}] = candidatesOf(chunk);
    const parts = partsOf(candidate);
    const deltas = parts.flatMap((part) => this.#delta(part));
    if (isObject(chunk.usageMetadata)) this.#usage = largerCounts(this.#usage, chunk.usageMetadata);
    // The last count does not include this text.
    else if (parts.length > 0) this.#usage.candidatesTokenCount = undefined;
    if (candidate.finishReason === undefined && !isBlocked(chunk)) return deltas;
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

/** Joins the pieces of a text into one part, as in an answer that does not stream. */
function joined(parts: readonly Part[]): Part[] {
  const whole: Part[] = [];
  for (const part of parts) {
    const last = whole.at(-1);
    const isSame =
      typeof last?.text === "string" &&
      typeof part.text === "string" &&
      last.thought === part.thought &&
      last.thoughtSignature === undefined;
    if (isSame) whole[whole.length - 1] = { ...last, ...part, text: `${last.text}${part.text}` };
    else whole.push(part);
  }
  return whole;
}

/** The stream ends with its connection. */
export class GeminiReader implements NativeReader {
  isComplete = false;
  isCounted = false;
  readonly isOver = false;
  failure: string | null = null;
  #last: Body = {};
  #counts: Body = {};

  get usage(): unknown {
    return chatUsage(this.#counts);
  }

  read(chunk: Body): unknown {
    if (chunk.error !== undefined) {
      this.failure = errorMessage(chunk.error);
      this.isCounted = false;
      return null;
    }
    this.#last = chunk;
    const counts = membersOf(chunk.usageMetadata);
    this.#counts = largerCounts(this.#counts, counts);
    this.isCounted = counts.candidatesTokenCount != null;
    const candidates = candidatesOf(chunk);
    if (isBlocked(chunk) || candidates.some(({ finishReason }) => finishReason !== undefined))
      this.isComplete = true;
    return candidates.map(({ content }) => {
      if (!isObject(content) || !Array.isArray(content.parts)) return content;
      return content.parts.map((part) => sealed(part, "thoughtSignature"));
    });
  }

  whole(answer: Body): unknown {
    requireCandidates(answer);
    const written = this.read(answer);
    this.isComplete = true;
    return written;
  }

  limited(usage: { promptTokens: number; completionTokens: number } | null): string {
    const { modelVersion, responseId } = this.#last;
    const content = { role: "model", parts: [{ text: "" }] };
    return eventText({
      candidates: [{ content, finishReason: "MAX_TOKENS", index: 0 }],
      ...(usage && {
        usageMetadata: {
          promptTokenCount: usage.promptTokens,
          candidatesTokenCount: usage.completionTokens,
          totalTokenCount: usage.promptTokens + usage.completionTokens,
        },
      }),
      modelVersion,
      responseId,
    });
  }

  failed(message: string): string {
    return eventText({ error: { code: 500, message, status: "INTERNAL" } });
  }
}

/** The answer to an embeddings request, which has no usage. */
export function geminiVectors(body: unknown): number[][] {
  const list = isObject(body) && Array.isArray(body.embeddings) ? body.embeddings : null;
  if (!list) throw new BackendError("transport", "the upstream answered without `embeddings`");
  return list.map((one) => (isObject(one) && Array.isArray(one.values) ? (one.values as number[]) : []));
}
