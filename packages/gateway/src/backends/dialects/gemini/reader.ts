import { isObject } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import { BackendError, type NativeDialect, type NativeReader } from "../../contract.ts";
import { eventText, largerCounts, sealed, wordsOf } from "../dialect.ts";
import { chatUsage } from "./answer.ts";
import { BUDGETED_MODEL, NO_SIGNATURE, type Part } from "./request.ts";

/** Reads an answer of Gemini's, or the chunks of one. The stream ends with its connection. */
export class GeminiReader implements NativeReader {
  isComplete = false;
  isCounted = false;
  readonly isOver = false;
  failure: string | null = null;
  #last: Record<string, unknown> = {};
  #counts: Record<string, unknown> = {};

  get usage(): unknown {
    return chatUsage(this.#counts);
  }

  read(chunk: Record<string, unknown>): unknown {
    if (chunk.error !== undefined) {
      this.failure = wordsOf(chunk.error);
      this.isCounted = false;
      return null;
    }
    this.#last = chunk;
    const counts = isObject(chunk.usageMetadata) ? chunk.usageMetadata : {};
    this.#counts = largerCounts(this.#counts, counts);
    this.isCounted = counts.candidatesTokenCount != null;
    const candidates = Array.isArray(chunk.candidates) ? chunk.candidates.filter(isObject) : [];
    const isBlocked = isObject(chunk.promptFeedback) && chunk.promptFeedback.blockReason !== undefined;
    if (isBlocked || candidates.some(({ finishReason }) => finishReason !== undefined))
      this.isComplete = true;
    return candidates.map(({ content }) => {
      if (!isObject(content) || !Array.isArray(content.parts)) return content;
      return content.parts.map((part) => sealed(part, "thoughtSignature"));
    });
  }

  whole(answer: Record<string, unknown>): unknown {
    if (!Array.isArray(answer.candidates) && !isObject(answer.promptFeedback))
      throw new BackendError("transport", "the upstream answered without `candidates`");
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

const partsOf = (content: unknown): unknown[] =>
  isObject(content) && content.role === "model" && Array.isArray(content.parts) ? content.parts : [];
/** Of the calls in one content, the first is signed by the model that made them. */
const firstCall = (content: unknown): Part | undefined =>
  partsOf(content).find((part): part is Part => isObject(part) && isObject(part.functionCall));

/** Calls that another model made. Models before Gemini 3 sign none. */
export const mended: NativeDialect["mended"] = (body, model) => {
  const contents = body.value("contents");
  const isSigning = !BUDGETED_MODEL.test(model);
  const isForeign = (call: Part | undefined) =>
    call !== undefined &&
    (thoughtsIn(call.thoughtSignature) !== null || (isSigning && call.thoughtSignature === undefined));
  if (!Array.isArray(contents) || !contents.some((content) => isForeign(firstCall(content)))) return [];
  const signed = contents.map((content) => {
    const call = firstCall(content);
    if (!isForeign(call)) return content;
    const own = { ...call, thoughtSignature: isSigning ? NO_SIGNATURE : undefined };
    return { ...content, parts: partsOf(content).map((part) => (part === call ? own : part)) };
  });
  return [["contents", JSON.stringify(signed)]];
};
