import { isObject } from "../../../kernel/json.ts";
import { endOfBrackets, skipSpace, withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { isPlausible, partsIn, type UsageParts } from "../../../kernel/usage-parts.ts";
import type { AnswerBody } from "./answer-body.ts";

export interface ReportedUsage extends UsageParts {
  /** What the report does not say; where it is both, the sum was reported and stands as the prompt's. */
  lacks?: "prompt" | "completion" | "both";
  /** What the upstream itself asks for the request. */
  reportedUsd?: number;
}

/** Of several reports in one stream the largest counts; of equal ones the later. */
export const largerUsage = (before: ReportedUsage | null, now: ReportedUsage): ReportedUsage =>
  before !== null && tokensOf(before) > tokensOf(now) ? before : now;

const tokensOf = ({ promptTokens, completionTokens }: ReportedUsage): number =>
  promptTokens + completionTokens;

export const usageFields = ({ promptTokens, completionTokens }: ReportedUsage) => ({
  prompt_tokens: promptTokens,
  completion_tokens: completionTokens,
  total_tokens: promptTokens + completionTokens,
});

const KEY = '"usage"';
/** Up to the object that it is; a quote that is escaped is part of another key. */
const KEY_OF_OBJECT = /(?<!\\)"usage"\s*:\s*(?=\{)/y;

/** Figures that no request can have: not whole, below zero, or beyond every model. */
export const ABSURD = "absurd";
export type UsageReport = ReportedUsage | typeof ABSURD | null;

const FLEX = "flex";

/** Of two reports in one stream: both together where they are of different things. */
export function joinedUsage(before: UsageReport, now: UsageReport, isAnother: boolean): UsageReport {
  if (before === ABSURD || now === ABSURD) return ABSURD;
  if (before === null || now === null) return before ?? now;
  if (!isAnother) return largerUsage(before, now);
  const sum = { ...before };
  for (const [name, value] of Object.entries(now))
    if (typeof value === "number") Object.assign(sum, { [name]: value + Number(Object(before)[name] ?? 0) });
  return sum;
}

/** Null when the object says nothing about tokens. `tier` is the answer's own, where the usage does not tell it. */
export function readUsage(value: unknown, tier?: unknown): UsageReport {
  if (typeof value !== "object" || value === null) return null;
  const usage = value as Record<string, unknown>;
  const prompt = usage.prompt_tokens ?? usage.input_tokens;
  const completion = usage.completion_tokens ?? usage.output_tokens;
  const total = usage.total_tokens;
  for (const figure of [prompt, completion, total]) {
    if (figure !== undefined && figure !== null && !isPlausible(figure)) return ABSURD;
  }
  const p = (prompt ?? null) as number | null;
  const c = (completion ?? null) as number | null;
  const t = (total ?? null) as number | null;
  // Embeddings often report a total alone; where one of the others is missing, it is the rest.
  if (p === null && c === null) return t ? { promptTokens: t, completionTokens: 0, lacks: "both" } : null;
  const isRestKnown = t !== null && t >= (p ?? 0) + (c ?? 0);
  const promptTokens = p ?? (isRestKnown ? t - c! : 0);
  const completionTokens = c ?? (isRestKnown ? t - p! : 0);
  if (promptTokens + completionTokens === 0) return null;
  if (isRestKnown || (p !== null && c !== null)) {
    const parts = partsIn(usage, { promptTokens, completionTokens });
    const priced = Number.isFinite(usage.cost) ? { ...parts, reportedUsd: usage.cost as number } : parts;
    return (usage.service_tier ?? tier) === FLEX ? { ...priced, isBatch: true } : priced;
  }
  return { promptTokens, completionTokens, lacks: p === null ? "prompt" : "completion" };
}

/** The usage of a whole JSON answer without parsing it: the last top-level `"usage"` object, near the end. */
export function usageOfTail(body: AnswerBody): UsageReport {
  const { tail } = body;
  const last = tail.includes(`"${FLEX}"`) ? -1 : tail.lastIndexOf(KEY);
  const closing = last === -1 ? null : closingUsage(tail, last);
  if (closing !== null) return readUsage(closing);
  // Usage is missing, not at the end, has escapes in its name, stands before its name appears again or beside a tier, which is rare.
  const { parsed } = body;
  return isObject(parsed) ? readUsage(parsed.usage, parsed.service_tier) : null;
}

/** The usage in the last event that has one, from the end of an event stream. */
export function usageOfEvents(tail: string): UsageReport {
  let largest: UsageReport = null;
  for (let end = tail.length; end > 0; ) {
    const at = tail.lastIndexOf(KEY, end - 1);
    if (at === -1) break;
    const told = usageAt(tail, at);
    if (told === ABSURD) return told;
    if (told !== null) largest = largerUsage(largest, told);
    end = at;
  }
  if (largest !== null) return largest;
  const plain = withoutEscapedLetters(tail);
  return plain === tail ? null : usageOfEvents(plain);
}

function usageAt(text: string, at: number): UsageReport {
  const start = startOfUsage(text, at);
  if (start === -1) return null;
  try {
    return readUsage(JSON.parse(text.slice(start, endOfBrackets(text, start))));
  } catch {
    return null;
  }
}

/** Where the object begins whose key is at `at`; -1 when it is something else. */
function startOfUsage(text: string, at: number): number {
  KEY_OF_OBJECT.lastIndex = at;
  return KEY_OF_OBJECT.test(text) ? KEY_OF_OBJECT.lastIndex : -1;
}

/** The usage whose key is at `at`, when the object that it stands in is all that the text ends with. */
function closingUsage(text: string, at: number): unknown {
  const start = startOfUsage(text, at);
  if (start === -1) return null;
  try {
    const end = endOfBrackets(text, start);
    let close = skipSpace(text, end);
    if (text[close] !== "}") close = at - 2 + endOfBrackets(`{${text.slice(at)}`, 0);
    return skipSpace(text, close + 1) < text.length ? null : JSON.parse(text.slice(start, end));
  } catch {
    return null;
  }
}
