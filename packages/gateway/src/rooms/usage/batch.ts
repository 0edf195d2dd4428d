import { type ChargedLine, isCharged } from "../../kernel/request-row.ts";
import type { SqlValue } from "../../storage/contract.ts";
import {
  bucketOf,
  CACHE_COLUMNS,
  DAY_MS,
  GRAINS_MS,
  MINUTE_MS,
  memberId,
  type RequestRow,
  SUM_COLUMNS,
  utcMonth,
  WHOLE_USER,
} from "./rows.ts";

/** Stands for null in the keys of sums, and for everyone. */
export const NO_ID = "00000000-0000-0000-0000-000000000000";

type Key = readonly (string | number)[];

interface Sum {
  key: Key;
  values: number[];
}

export class Sums {
  readonly #sums = new Map<string, Sum>();

  add(key: Key, values: readonly number[]): void {
    const sums = this.at(key, values.length);
    for (let i = 0; i < values.length; i++) sums[i]! += values[i]!;
  }

  /** The sums of a key, all 0 at first. */
  at(key: Key, count: number): number[] {
    const id = key.join("\u0000");
    const sum = this.#sums.get(id) ?? { key, values: new Array<number>(count).fill(0) };
    this.#sums.set(id, sum);
    return sum.values;
  }

  get all(): Iterable<Sum> {
    return this.#sums.values();
  }

  /** Sorted by key, so that two writers lock rows in the same order. */
  rows(): Key[] {
    return [...this.#sums]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, { key, values }]) => [...key, ...values]);
  }
}

/** What a batch adds to each key: one sum per key, because Postgres refuses to update a row twice in one statement. */
class KeySums {
  readonly #sums = new Map<
    string,
    { month: string; monthNanoUsd: number; totalNanoUsd: number; requests: number; lastUsedMs: number }
  >();

  add(keyId: string, month: string, nanoUsd: number, lastUsedMs: number): void {
    const first = { month, monthNanoUsd: 0, totalNanoUsd: 0, requests: 0, lastUsedMs };
    const sum = this.#sums.get(keyId) ?? first;
    this.#sums.set(keyId, sum);
    if (month > sum.month) {
      sum.month = month;
      sum.monthNanoUsd = 0;
    }
    if (month === sum.month) sum.monthNanoUsd += nanoUsd;
    sum.totalNanoUsd += nanoUsd;
    sum.requests++;
    if (lastUsedMs > sum.lastUsedMs) sum.lastUsedMs = lastUsedMs;
  }

  /** Sorted by key, for the same reason. */
  rows(): SqlValue[][] {
    return [...this.#sums]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([keyId, sum]) => [keyId, ...Object.values(sum)]);
  }
}

const startOf = (ms: number, grainMs: number): number => ms - (ms % grainMs);

const cacheOf = ({ cachedTokens, cacheWriteTokens, cacheSavedNanoUsd }: RequestRow): number[] => [
  cachedTokens ?? 0,
  cacheWriteTokens ?? 0,
  cacheSavedNanoUsd ?? 0,
];
const figuresOf = ({ promptTokens, completionTokens, costNanoUsd }: RequestRow): number[] => [
  promptTokens,
  completionTokens,
  costNanoUsd ?? 0,
];

const FIRST_TOKEN = SUM_COLUMNS.indexOf("first_token_0");
const DURATION = SUM_COLUMNS.indexOf("duration_0");
const CACHE = SUM_COLUMNS.indexOf(CACHE_COLUMNS[0]);

/** Touches only the columns that one row changes, of the many that a kind has. */
function addRow(sums: number[], row: RequestRow): void {
  sums[0]!++;
  sums[1]! += row.promptTokens;
  sums[2]! += row.completionTokens;
  sums[3]! += row.costNanoUsd ?? 0;
  if (row.unpriced) sums[4]!++;
  if (row.firstTokenMs !== null) sums[FIRST_TOKEN + bucketOf(row.firstTokenMs)]!++;
  sums[DURATION + bucketOf(row.durationMs)]!++;
  sums[CACHE]! += row.cachedTokens ?? 0;
  sums[CACHE + 1]! += row.cacheWriteTokens ?? 0;
  sums[CACHE + 2]! += row.cacheSavedNanoUsd ?? 0;
}

/** Everything that some request rows add to the rollups. */
export class Batch {
  readonly months = new Sums();
  readonly kinds = new Sums();
  readonly askerDays = new Sums();
  readonly refDays = new Sums();
  readonly keys = new KeySums();

  constructor(rows: readonly RequestRow[]) {
    const minutes = new Sums();
    for (const row of rows) {
      this.#addKind(minutes, row);
      this.#addAsker(row);
      if (isCharged(row)) this.#addCharge(row);
    }
    for (const { key, values } of minutes.all) {
      const [minuteMs, ...kind] = key;
      for (const grainMs of GRAINS_MS)
        this.kinds.add([grainMs, NO_ID, startOf(Number(minuteMs), grainMs), ...kind], values);
    }
  }

  #addKind(minutes: Sums, row: RequestRow): void {
    const { atMs, surface, model, backend, channel, status, code } = row;
    const kind = [surface ?? "", model ?? "", backend ?? "", channel ?? "", status ?? 0, code ?? ""];
    addRow(minutes.at([startOf(atMs, MINUTE_MS), ...kind], SUM_COLUMNS.length), row);
    if (row.userId !== null)
      addRow(this.kinds.at([DAY_MS, row.userId, startOf(atMs, DAY_MS), ...kind], SUM_COLUMNS.length), row);
  }

  #addAsker(row: RequestRow): void {
    const { userId, attribution, keyId, project, groupId, channel, status } = row;
    const isUnanswered = status !== null && status >= 400;
    const asker = [userId ?? NO_ID, attribution ?? "", keyId ?? NO_ID, project ?? "", groupId ?? NO_ID];
    const requests = [1, Number(status === null), Number(isUnanswered)];
    this.askerDays.add(
      [startOf(row.atMs, DAY_MS), ...asker, channel ?? ""],
      [...requests, ...figuresOf(row), Number(row.unpriced ?? false), ...cacheOf(row)],
    );
  }

  #addCharge(row: RequestRow & ChargedLine): void {
    const { userId, groupId, project, keyId, refId, atMs } = row;
    const nanoUsd = row.costNanoUsd ?? 0;
    const tokens = row.promptTokens + row.completionTokens;
    const month = utcMonth(atMs);
    const ofQuota = row.points === null ? 1 : 0;
    // Only requests with a key have a project.
    const ofKeys = project === null ? 0 : ofQuota;
    const quota = [ofQuota * tokens, ofQuota * nanoUsd, ofKeys * tokens, ofKeys * nanoUsd];
    this.months.add([userId, month, WHOLE_USER], [1, tokens, nanoUsd, ...quota]);
    if (project !== null) this.months.add([userId, month, project], [1, tokens, nanoUsd, ...quota]);
    const spenders = [keyId, groupId && memberId(groupId, userId)];
    for (const id of spenders) if (id !== null) this.keys.add(id, month, nanoUsd, atMs);
    if (refId !== null)
      this.refDays.add(
        [refId, startOf(atMs, DAY_MS), row.model, row.channel],
        [1, ...figuresOf(row), ...cacheOf(row)],
      );
  }
}
