import { sha256Hex } from "../../kernel/ids.ts";

/** What requests have in common, so that rows name it by number. An empty text means none. */
export interface Facet {
  id: number;
  surface: string;
  model: string;
  backend: string;
  status: number;
  code: string;
}

/** Who asks: a key, a signed-in person, or nobody that is known. */
export interface Asker {
  id: number;
  userId: string | null;
  keyId: string | null;
  groupId: string | null;
  project: string | null;
  keyPrefix: string | null;
}

/** What is stored only where there is something to say. */
export interface Detail {
  /** The model as the client wrote it, where that is not the one that served. */
  asked?: string;
  message?: string;
  /** Attempts before the last one, and the last one if it failed; times since the request came. */
  failed?: { backend: string; model: string; from_ms: number; to_ms: number; message: string }[];
  ref?: string;
  ip?: string;
  estimated?: true;
}

export interface RecordRow {
  id: string;
  atMs: number;
  askerId: number;
  facetId: number;
  status: number;
  attempts: number;
  /** From the request's arrival to its first sending. */
  queueMs: number;
  firstTokenMs: number | null;
  durationMs: number;
  promptTokens: number;
  completionTokens: number;
  /** Null when the model has no price. */
  costNanoUsd: number | null;
  /** One of the router's words. */
  reason: string | null;
  detail: Detail | null;
}

/** What of a row is only shown. */
export type Facts = readonly [
  attempts: number,
  queueMs: number,
  firstTokenMs: number | null,
  durationMs: number,
  promptTokens: number,
  completionTokens: number,
  costNanoUsd: number | null,
  reason: string | null,
  detail?: Detail | null,
];

/** A request as its block has it. Numbers of askers and facets are texts: these are quicker to write. */
export type StoredRow = readonly [id: string, askerId: string, facetId: string, ...facts: Facts];

export const storedRow = (row: RecordRow, askerId: string, facetId: string): StoredRow => [
  row.id,
  askerId,
  facetId,
  row.attempts,
  row.queueMs,
  row.firstTokenMs,
  row.durationMs,
  row.promptTokens,
  row.completionTokens,
  row.costNanoUsd,
  row.reason,
  row.detail,
];

const ID_HEX_DIGITS = 13;

/** The same on every instance, without asking the database: 52 bits of a digest. */
export function numberFor(...parts: readonly (string | number | null)[]): number {
  return Number.parseInt(sha256Hex(JSON.stringify(parts)).slice(0, ID_HEX_DIGITS), 16) || 1;
}

const TIME_HEX_DIGITS = 12;
const HYPHEN_AT = 8;
const [CODE_OF_0, CODE_OF_A] = [48, 97];

/** When an ordered id was made; there is one for every request, so no texts are made of its parts. */
export function timeOfId(id: string): number {
  let ms = 0;
  for (let i = 0; i <= TIME_HEX_DIGITS; i++) {
    if (i === HYPHEN_AT) continue;
    const code = id.charCodeAt(i);
    ms = ms * 16 + (code < CODE_OF_A ? code - CODE_OF_0 : code - CODE_OF_A + 10);
  }
  return ms;
}

/** The smallest id of an instant: ids of requests that came then or later are not below it. */
export function firstIdAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(TIME_HEX_DIGITS, "0").slice(-TIME_HEX_DIGITS);
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;
export const GRAINS_MS = [MINUTE_MS, HOUR_MS, DAY_MS] as const;

/** Upper bounds of the buckets that times are counted in; longer ones go to one more. */
export const BUCKETS_MS = [
  25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800,
] as const;
export const BUCKET_COUNT = BUCKETS_MS.length + 1;

function bucketOf(ms: number): number {
  let bucket = 0;
  while (bucket < BUCKETS_MS.length && ms > BUCKETS_MS[bucket]!) bucket++;
  return bucket;
}

/** Sums of requests: counts, tokens, cost, then the two histograms. In this order in the database, too. */
export const SUM_COLUMNS: readonly string[] = [
  "requests",
  "prompt_tokens",
  "completion_tokens",
  "cost_nano_usd",
  ...Array.from({ length: BUCKET_COUNT }, (_, i) => `first_token_${i}`),
  ...Array.from({ length: BUCKET_COUNT }, (_, i) => `duration_${i}`),
];
const FIRST_TOKEN_AT = 4;
const DURATION_AT = FIRST_TOKEN_AT + BUCKET_COUNT;

export const noSums = (): number[] => new Array(SUM_COLUMNS.length).fill(0);

export function addRow(sums: number[], row: RecordRow): void {
  sums[0]! += 1;
  sums[1]! += row.promptTokens;
  sums[2]! += row.completionTokens;
  sums[3]! += row.costNanoUsd ?? 0;
  if (row.firstTokenMs !== null) sums[FIRST_TOKEN_AT + bucketOf(row.firstTokenMs)]! += 1;
  sums[DURATION_AT + bucketOf(row.durationMs)]! += 1;
}

export const totalsIn = ([requests, promptTokens, completionTokens, costNanoUsd]: readonly number[]) => ({
  requests: requests!,
  promptTokens: promptTokens!,
  completionTokens: completionTokens!,
  costNanoUsd: costNanoUsd!,
});

export function addSums(sums: number[], more: readonly number[]): void {
  for (let i = 0; i < more.length; i++) sums[i]! += more[i]!;
}

export const firstTokenCounts = (sums: readonly number[]): number[] =>
  sums.slice(FIRST_TOKEN_AT, DURATION_AT);
export const durationCounts = (sums: readonly number[]): number[] => sums.slice(DURATION_AT);
