import { isObject } from "../../../kernel/json.ts";
import { endOfBrackets, skipSpace, withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { isPlausible, partsIn, type UsageParts } from "../../../kernel/usage-parts.ts";
import type { AnswerBody } from "./answer.ts";

export interface ReportedUsage extends UsageParts {
  /** Which figure is missing. `both`: only the sum was reported, and stands in `promptTokens`. */
  lacks?: "prompt" | "completion" | "both";
  /** The upstream's own price for the request. */
  reportedUsd?: number;
}

/** Of several reports in one stream the largest counts; among equal ones the latest. */
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
/** Matches up to the object. An escaped quote belongs to another key. */
const KEY_OF_OBJECT = /(?<!\\)"usage"\s*:\s*(?=\{)/y;

/** Impossible figures: fractional, negative, or beyond any model. */
export const ABSURD = "absurd";
export type UsageReport = ReportedUsage | typeof ABSURD | null;

const FLEX = "flex";

/** Combines two reports of one stream: the sum if they cover different items, else the larger. */
export function joinedUsage(before: UsageReport, now: UsageReport, isAnother: boolean): UsageReport {
  if (before === ABSURD || now === ABSURD) return ABSURD;
  if (before === null || now === null) return before ?? now;
  if (!isAnother) return largerUsage(before, now);
  const sum = { ...before };
  for (const [name, value] of Object.entries(now))
    if (typeof value === "number") Object.assign(sum, { [name]: value + Number(Object(before)[name] ?? 0) });
  return sum;
}

/** Null when the object has no token counts. `tier` is the answer's, used if the usage itself has none. */
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
  // Embeddings often report only a total. If one figure is missing, it is the rest of the total.
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
  // Rare: usage is missing, not at the end, spelled with escapes, mentioned again later, or has a tier beside it.
  const { parsed } = body;
  return isObject(parsed) ? readUsage(parsed.usage, parsed.service_tier) : null;
}

/** The usage objects in the tail of an event stream. */
export function usagesIn(tail: string): unknown[] {
  const found = [...tail.matchAll(/"usage"/g)].flatMap(({ index }) => usageAt(tail, index));
  const plain = found.length > 0 ? tail : withoutEscapedLetters(tail);
  return plain === tail ? found : usagesIn(plain);
}

export function largestUsage(usages: readonly unknown[]): UsageReport {
  let largest: UsageReport = null;
  for (const each of usages) {
    const usage = readUsage(each);
    if (usage === ABSURD) return usage;
    if (usage !== null) largest = largerUsage(largest, usage);
  }
  return largest;
}

function usageAt(text: string, at: number): unknown[] {
  const start = startOfUsage(text, at);
  if (start === -1) return [];
  try {
    return [JSON.parse(text.slice(start, endOfBrackets(text, start)))];
  } catch {
    return [];
  }
}

/** Where the object of the key at `at` begins; -1 if the value is not an object. */
function startOfUsage(text: string, at: number): number {
  KEY_OF_OBJECT.lastIndex = at;
  return KEY_OF_OBJECT.test(text) ? KEY_OF_OBJECT.lastIndex : -1;
}

/** The usage whose key is at `at`, if nothing but its enclosing object follows. */
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
