import { type ChargedLine, isCharged } from "../../kernel/request-row.ts";
import { KeySums } from "./key-spend.ts";
import {
  BUCKET_COUNT,
  bucketOf,
  DAY_MS,
  GRAINS_MS,
  MINUTE_MS,
  type RequestRow,
  utcMonth,
  WHOLE_USER,
} from "./rows.ts";
import { type KeyPart, Sums } from "./sums.ts";

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

const NO_TIME: readonly number[] = new Array(BUCKET_COUNT).fill(0);
/** Histograms of one time each, by its bucket. */
const ONE_TIME = NO_TIME.map((_, bucket) => NO_TIME.with(bucket, 1));

export class Batch {
  readonly months = new Sums();
  readonly kinds = new Sums();
  readonly askerDays = new Sums();
  readonly refDays = new Sums();
  readonly keys = new KeySums();

  constructor(rows: readonly RequestRow[]) {
    const minutes = new Sums<readonly [startMs: number, ...kind: KeyPart[]]>();
    for (const row of rows) {
      this.#addKind(minutes, row);
      this.#addAsker(row);
      if (isCharged(row)) this.#addCharge(row);
    }
    for (const { key, values } of minutes.all)
      for (const grainMs of GRAINS_MS)
        this.kinds.add([grainMs, NO_ID, startOf(key[0], grainMs), ...key.slice(1)], values);
  }

  #addKind(minutes: Sums<readonly [startMs: number, ...kind: KeyPart[]]>, row: RequestRow): void {
    const { atMs, surface, model, backend, channel, status, code, firstTokenMs } = row;
    const kind = [surface ?? "", model ?? "", backend ?? "", channel ?? "", status ?? 0, code ?? ""];
    const firstToken = firstTokenMs === null ? NO_TIME : ONE_TIME[bucketOf(firstTokenMs)]!;
    const times = [...firstToken, ...ONE_TIME[bucketOf(row.durationMs)]!];
    const sums = [1, ...figuresOf(row), Number(row.unpriced ?? false), ...times, ...cacheOf(row)];
    minutes.add([startOf(atMs, MINUTE_MS), ...kind], sums);
    if (row.userId !== null) this.kinds.add([DAY_MS, row.userId, startOf(atMs, DAY_MS), ...kind], sums);
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
    const { userId, project, keyId, refId, atMs } = row;
    const nanoUsd = row.costNanoUsd ?? 0;
    const tokens = row.promptTokens + row.completionTokens;
    const month = utcMonth(atMs);
    const ofQuota = row.points === null ? 1 : 0;
    // Only what is done with a key has a project.
    const ofKeys = project === null ? 0 : ofQuota;
    const quota = [ofQuota * tokens, ofQuota * nanoUsd, ofKeys * tokens, ofKeys * nanoUsd];
    this.months.add([userId, month, WHOLE_USER], [1, tokens, nanoUsd, ...quota]);
    if (project !== null) this.months.add([userId, month, project], [1, tokens, nanoUsd, ...quota]);
    if (keyId !== null) this.keys.add(keyId, { month, nanoUsd, lastUsedMs: atMs });
    if (refId !== null)
      this.refDays.add(
        [refId, startOf(atMs, DAY_MS), row.model, row.channel],
        [1, ...figuresOf(row), ...cacheOf(row)],
      );
  }
}
