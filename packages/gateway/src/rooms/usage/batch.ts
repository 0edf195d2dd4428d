import { type ChargedLine, isCharged } from "../../kernel/request-row.ts";
import { KeySums } from "./key-spend.ts";
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
import { Sums } from "./sums.ts";

/** Stands for null in the keys of sums, and for everyone. */
export const NO_ID = "00000000-0000-0000-0000-000000000000";

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

/** Adds to the few of a kind's many sums that a row has. */
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
    // Only what is done with a key has a project.
    const ofKeys = project === null ? 0 : ofQuota;
    const quota = [ofQuota * tokens, ofQuota * nanoUsd, ofKeys * tokens, ofKeys * nanoUsd];
    this.months.add([userId, month, WHOLE_USER], [1, tokens, nanoUsd, ...quota]);
    if (project !== null) this.months.add([userId, month, project], [1, tokens, nanoUsd, ...quota]);
    const spenders = [keyId, groupId && memberId(groupId, userId)];
    for (const id of spenders) if (id !== null) this.keys.add(id, { month, nanoUsd, lastUsedMs: atMs });
    if (refId !== null)
      this.refDays.add(
        [refId, startOf(atMs, DAY_MS), row.model, row.channel],
        [1, ...figuresOf(row), ...cacheOf(row)],
      );
  }
}
