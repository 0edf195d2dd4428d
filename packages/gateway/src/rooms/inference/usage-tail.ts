import type { AnswerBody } from "./answer-body.ts";

/** Token counts as an upstream reports them. */
export interface ReportedUsage {
  promptTokens: number;
  completionTokens: number;
}

/** Token counts as an answer carries them. */
export const usageFields = ({ promptTokens, completionTokens }: ReportedUsage) => ({
  prompt_tokens: promptTokens,
  completion_tokens: completionTokens,
  total_tokens: promptTokens + completionTokens,
});

const KEY = '"usage"';

const count = (value: unknown): number =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.floor(value) : 0;

/** Null when the object says nothing about tokens. */
export function readUsage(value: unknown): ReportedUsage | null {
  if (typeof value !== "object" || value === null) return null;
  const usage = value as Record<string, unknown>;
  const promptTokens = count(usage.prompt_tokens ?? usage.input_tokens);
  const completionTokens = count(usage.completion_tokens ?? usage.output_tokens);
  const total = count(usage.total_tokens);
  if (promptTokens + completionTokens === 0 && total === 0) return null;
  // Embeddings often report a total alone.
  return promptTokens + completionTokens === 0
    ? { promptTokens: total, completionTokens: 0 }
    : { promptTokens, completionTokens };
}

/**
 * The usage of a whole JSON answer without parsing it: the last `"usage"` that is followed by a complete object
 * and stands at the top level, which is where every server writes it, near the end.
 */
export function usageOfTail({ bytes, tail, tailStart }: AnswerBody): ReportedUsage | null {
  // Most answers end with it.
  const last = tail.lastIndexOf(KEY);
  if (last !== -1) {
    const rest = tail.slice(last + KEY.length);
    const found = usageAt(rest);
    if (found && closesTopLevel(rest, found.end)) return readUsage(found.value);
  } else if (tailStart === 0 || !bytes.includes(KEY)) return null;
  // Written early, or there is another of that name behind it: parsing is the honest way, and rare.
  return usageByParsing(bytes);
}

function usageByParsing(bytes: Buffer): ReportedUsage | null {
  try {
    const body = JSON.parse(bytes.toString("utf8")) as { usage?: unknown } | null;
    return readUsage(body?.usage);
  } catch {
    return null;
  }
}

/** The object that is the value at the beginning of `text`, and where it ends. */
function usageAt(text: string): { value: unknown; end: number } | null {
  const open = /^\s*:\s*\{/.exec(text);
  if (!open) return null;
  const start = open[0].length - 1;
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 34) {
      i = text.indexOf('"', i + 1);
      if (i === -1) return null;
    } else if (char === 123) depth++;
    else if (char === 125 && --depth === 0) {
      try {
        return { value: JSON.parse(text.slice(start, i + 1)), end: i + 1 };
      } catch {
        return null;
      }
    }
  }
  return null;
}

/** Whether exactly the outermost object is still open at `from`: what follows closes one brace more than it opens. */
function closesTopLevel(text: string, from: number): boolean {
  let depth = 1;
  for (let i = from; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 34) {
      for (i++; i < text.length && text.charCodeAt(i) !== 34; i++) if (text.charCodeAt(i) === 92) i++;
    } else if (char === 123 || char === 91) depth++;
    else if (char === 125 || char === 93) depth--;
  }
  return depth === 0;
}
