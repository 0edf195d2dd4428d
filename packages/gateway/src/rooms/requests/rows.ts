import { sha256Hex, timeOfId } from "../../kernel/ids.ts";

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

/** One request as it is stored. */
export interface RecordRow {
  /** It says when the request came. */
  id: string;
  askerId: number;
  facetId: number;
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

/** The router's words by number. Rows have the numbers, so words are only added. */
const REASONS = [
  "only_backend",
  "fewest_requests",
  "fastest",
  "conversation",
  "provider_asked_for",
  "model_route",
  "fallback",
];

/** Where the numbers of a row stand: those for names and the cost are doubles (NaN: none), ... */
export const DOUBLE_AT = { asker: 0, facet: 1, costNanoUsd: 2 } as const;
export const DOUBLES = 3;
/** ... and the rest as whole numbers of 32 bits. */
export const COUNT_AT = {
  attempts: 0,
  queueMs: 1,
  firstTokenMs: 2,
  durationMs: 3,
  promptTokens: 4,
  completionTokens: 5,
  reason: 6,
} as const;
export const COUNTS = 7;
/** In place of a count: there is none. */
const NO_COUNT = 2 ** 32 - 1;

/** A clock that was set back makes times negative, and an upstream may report any number of tokens. */
const countOf = (number: number): number =>
  number >= 0 && number < NO_COUNT ? number : number > 0 ? NO_COUNT - 1 : 0;

export type Numbers = Pick<Rows, "doubles" | "counts">;

/** The row whose numbers stand at this place. */
export function rowAt(
  { doubles, counts }: Numbers,
  place: number,
  { id, detail }: Pick<RecordRow, "id" | "detail">,
): RecordRow {
  const count = (of: keyof typeof COUNT_AT) => counts[place * COUNTS + COUNT_AT[of]]!;
  const firstTokenMs = count("firstTokenMs");
  const costNanoUsd = doubles[place * DOUBLES + DOUBLE_AT.costNanoUsd]!;
  return {
    id,
    askerId: doubles[place * DOUBLES + DOUBLE_AT.asker]!,
    facetId: doubles[place * DOUBLES + DOUBLE_AT.facet]!,
    attempts: count("attempts"),
    queueMs: count("queueMs"),
    firstTokenMs: firstTokenMs === NO_COUNT ? null : firstTokenMs,
    durationMs: count("durationMs"),
    promptTokens: count("promptTokens"),
    completionTokens: count("completionTokens"),
    costNanoUsd: Number.isNaN(costNanoUsd) ? null : costNanoUsd,
    reason: REASONS[count("reason")] ?? null,
    detail,
  };
}

/**
 * Requests as numbers, in memory that is used again: objects that wait to be written survive garbage collections, which
 * costs more than everything else about a record.
 */
export class Rows {
  size = 0;
  readonly ids: string[] = [];
  readonly timesMs: Float64Array;
  readonly statuses: Uint16Array;
  readonly doubles: Float64Array;
  readonly counts: Uint32Array;
  /** By place, of the few that have one. */
  readonly details = new Map<number, Detail>();

  constructor(readonly sizeMax: number) {
    this.timesMs = new Float64Array(sizeMax);
    this.statuses = new Uint16Array(sizeMax);
    this.doubles = new Float64Array(sizeMax * DOUBLES);
    this.counts = new Uint32Array(sizeMax * COUNTS);
  }

  add(row: RecordRow, status: number, timeMs: number = timeOfId(row.id)): void {
    const { doubles, counts } = this;
    const place = this.size++;
    this.ids[place] = row.id;
    this.timesMs[place] = timeMs;
    this.statuses[place] = status;
    if (row.detail !== null) this.details.set(place, row.detail);
    const doublesAt = place * DOUBLES;
    doubles[doublesAt + DOUBLE_AT.asker] = row.askerId;
    doubles[doublesAt + DOUBLE_AT.facet] = row.facetId;
    doubles[doublesAt + DOUBLE_AT.costNanoUsd] = row.costNanoUsd ?? Number.NaN;
    const countsAt = place * COUNTS;
    counts[countsAt + COUNT_AT.attempts] = countOf(row.attempts);
    counts[countsAt + COUNT_AT.queueMs] = countOf(row.queueMs);
    counts[countsAt + COUNT_AT.firstTokenMs] =
      row.firstTokenMs === null ? NO_COUNT : countOf(row.firstTokenMs);
    counts[countsAt + COUNT_AT.durationMs] = countOf(row.durationMs);
    counts[countsAt + COUNT_AT.promptTokens] = countOf(row.promptTokens);
    counts[countsAt + COUNT_AT.completionTokens] = countOf(row.completionTokens);
    counts[countsAt + COUNT_AT.reason] = row.reason === null ? NO_COUNT : REASONS.indexOf(row.reason);
  }

  clear(): void {
    this.size = 0;
    this.details.clear();
  }
}

const ID_HEX_DIGITS = 13;

/** The same on every instance, without asking the database: 52 bits of a digest. */
export function numberFor(...parts: readonly (string | number | null)[]): number {
  return Number.parseInt(sha256Hex(JSON.stringify(parts)).slice(0, ID_HEX_DIGITS), 16) || 1;
}

const TIME_HEX_DIGITS = 12;

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

/** Adds the request at this place to the sums that begin at `sumsAt`. */
export function addRow(
  sums: Float64Array,
  sumsAt: number,
  { doubles, counts }: Numbers,
  place: number,
): void {
  const at = place * COUNTS;
  const firstTokenMs = counts[at + COUNT_AT.firstTokenMs]!;
  const costNanoUsd = doubles[place * DOUBLES + DOUBLE_AT.costNanoUsd]!;
  sums[sumsAt]! += 1;
  sums[sumsAt + 1]! += counts[at + COUNT_AT.promptTokens]!;
  sums[sumsAt + 2]! += counts[at + COUNT_AT.completionTokens]!;
  if (!Number.isNaN(costNanoUsd)) sums[sumsAt + 3]! += costNanoUsd;
  if (firstTokenMs !== NO_COUNT) sums[sumsAt + FIRST_TOKEN_AT + bucketOf(firstTokenMs)]! += 1;
  sums[sumsAt + DURATION_AT + bucketOf(counts[at + COUNT_AT.durationMs]!)]! += 1;
}

export const totalsIn = (sums: ArrayLike<number>) => ({
  requests: sums[0]!,
  promptTokens: sums[1]!,
  completionTokens: sums[2]!,
  costNanoUsd: sums[3]!,
});

export function addSums(sums: number[], more: ArrayLike<number>): void {
  for (let i = 0; i < more.length; i++) sums[i]! += more[i]!;
}

export const firstTokenCounts = (sums: readonly number[]): number[] =>
  sums.slice(FIRST_TOKEN_AT, DURATION_AT);
export const durationCounts = (sums: readonly number[]): number[] => sums.slice(DURATION_AT);
