import type { AnswerBody } from "./answer-body.ts";

/** Token counts as an upstream reports them. */
export interface ReportedUsage {
  promptTokens: number;
  completionTokens: number;
  /** Only the sum was reported; it stands as the prompt's. */
  isTotalOnly?: true;
}

/** Token counts as an answer carries them. */
export const usageFields = ({ promptTokens, completionTokens }: ReportedUsage) => ({
  prompt_tokens: promptTokens,
  completion_tokens: completionTokens,
  total_tokens: promptTokens + completionTokens,
});

const KEY = '"usage"';

/** More than any request can have; a figure beyond it is believed in nothing. */
const TOKENS_MAX = 10_000_000;
/** Figures that no request can have: not whole, below zero, or beyond every model. */
export const ABSURD = "absurd";
export type UsageReport = ReportedUsage | typeof ABSURD | null;

const isPlausible = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= TOKENS_MAX;

/** Null when the object says nothing about tokens. */
export function readUsage(value: unknown): UsageReport {
  if (typeof value !== "object" || value === null) return null;
  const usage = value as Record<string, unknown>;
  const prompt = usage.prompt_tokens ?? usage.input_tokens;
  const completion = usage.completion_tokens ?? usage.output_tokens;
  const total = usage.total_tokens;
  for (const figure of [prompt, completion, total]) {
    if (figure !== undefined && figure !== null && !isPlausible(figure)) return ABSURD;
  }
  const [p, c, t] = [prompt ?? null, completion ?? null, total ?? null] as (number | null)[];
  // Embeddings often report a total alone; where one of the others is missing, it is the rest.
  if (p === null && c === null) return t ? { promptTokens: t, completionTokens: 0, isTotalOnly: true } : null;
  const promptTokens = p ?? Math.max(0, (t ?? 0) - c!);
  const completionTokens = c ?? Math.max(0, (t ?? 0) - p!);
  return promptTokens + completionTokens === 0 ? null : { promptTokens, completionTokens };
}

/**
 * The usage of a whole JSON answer without parsing it: the last `"usage"` that is followed by a complete object
 * and stands at the top level, which is where every server writes it, near the end.
 */
export function usageOfTail({ bytes, tail, tailStart }: AnswerBody): UsageReport {
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

function usageByParsing(bytes: Buffer): UsageReport {
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
