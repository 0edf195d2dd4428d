import { isCharged } from "../../kernel/request-row.ts";
import { DAY_MS, MonthNames } from "./calendar.ts";
import { BUCKET_COUNT, bucketOf, GRAINS_MS, MINUTE_MS } from "./grains.ts";
import { KeySums } from "./key-spend.ts";
import { type RequestRow, WHOLE_USER } from "./rows.ts";
import { Sums } from "./sums.ts";

/** Stands for null in the keys of sums, and for everyone. */
export const NO_ID = "00000000-0000-0000-0000-000000000000";

/** Rows that count in the same places, added up. */
interface Gathered {
  /** One of them. */
  row: RequestRow;
  minuteMs: number;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  costNanoUsd: number;
  unpriced: number;
  lastMs: number;
  /** Requests by time to the first token, and by duration. */
  firstToken: number[];
  duration: number[];
}

const countsIn = ({ row, minuteMs }: Gathered, other: RequestRow): boolean =>
  other.atMs >= minuteMs &&
  other.atMs < minuteMs + MINUTE_MS &&
  row.userId === other.userId &&
  row.keyId === other.keyId &&
  row.project === other.project &&
  row.groupId === other.groupId &&
  row.surface === other.surface &&
  row.model === other.model &&
  row.backend === other.backend &&
  row.channel === other.channel &&
  row.status === other.status &&
  row.code === other.code &&
  (row.points === null) === (other.points === null);

const noBuckets = (): number[] => new Array(BUCKET_COUNT).fill(0);

/** What a batch of rows adds to the sums. Rows are grouped first: a batch has many of one key, which differ little. */
export class Batch {
  readonly months = new Sums();
  /** Everyone's, and each person's. */
  readonly kinds = new Sums();
  readonly askerDays = new Sums();
  readonly refDays = new Sums();
  readonly keys = new KeySums();
  /** By `attribution`: of each there are as many as the key has used models, or a few more. */
  readonly #groups = new Map<string | null, Gathered[]>();
  readonly #monthNames = new MonthNames();

  constructor(rows: readonly RequestRow[]) {
    for (const row of rows) this.#add(row);
    for (const groups of this.#groups.values()) for (const group of groups) this.#rollUp(group);
  }

  #add(row: RequestRow): void {
    const group = this.#groupOf(row);
    group.requests++;
    group.promptTokens += row.promptTokens;
    group.completionTokens += row.completionTokens;
    group.costNanoUsd += row.costNanoUsd ?? 0;
    if (row.channel !== null && row.costNanoUsd === null) group.unpriced++;
    if (row.atMs > group.lastMs) group.lastMs = row.atMs;
    if (row.firstTokenMs !== null) group.firstToken[bucketOf(row.firstTokenMs)]!++;
    group.duration[bucketOf(row.durationMs)]!++;
    if (row.refId !== null && isCharged(row))
      this.refDays.add(
        [row.refId, row.atMs - (row.atMs % DAY_MS), row.model, row.channel],
        [1, row.promptTokens, row.completionTokens, row.costNanoUsd ?? 0],
      );
  }

  #groupOf(row: RequestRow): Gathered {
    let groups = this.#groups.get(row.attribution);
    if (!groups) {
      groups = [];
      this.#groups.set(row.attribution, groups);
    }
    for (const group of groups) if (countsIn(group, row)) return group;
    const group = {
      row,
      minuteMs: row.atMs - (row.atMs % MINUTE_MS),
      requests: 0,
      promptTokens: 0,
      completionTokens: 0,
      costNanoUsd: 0,
      unpriced: 0,
      lastMs: 0,
      firstToken: noBuckets(),
      duration: noBuckets(),
    };
    groups.push(group);
    return group;
  }

  #rollUp(group: Gathered): void {
    const { row, minuteMs, requests, promptTokens, completionTokens, costNanoUsd, unpriced } = group;
    const figures = [promptTokens, completionTokens, costNanoUsd, unpriced];
    const sums = [requests, ...figures, ...group.firstToken, ...group.duration];
    const kind = [
      row.surface ?? "",
      row.model ?? "",
      row.backend ?? "",
      row.channel ?? "",
      row.status ?? 0,
      row.code ?? "",
    ];
    const { userId, attribution, keyId, project, groupId } = row;
    const dayMs = minuteMs - (minuteMs % DAY_MS);
    for (const grainMs of GRAINS_MS)
      this.kinds.add([grainMs, NO_ID, minuteMs - (minuteMs % grainMs), ...kind], sums);
    if (userId !== null) this.kinds.add([DAY_MS, userId, dayMs, ...kind], sums);
    this.askerDays.add(
      [
        dayMs,
        userId ?? NO_ID,
        attribution ?? "",
        keyId ?? NO_ID,
        project ?? "",
        groupId ?? NO_ID,
        row.channel ?? "",
      ],
      [
        requests,
        row.status === null ? requests : 0,
        row.status !== null && row.status >= 400 ? requests : 0,
        ...figures,
      ],
    );
    if (isCharged(row)) this.#charge(group, row.userId);
  }

  #charge(group: Gathered, userId: string): void {
    const { row, requests, promptTokens, completionTokens, costNanoUsd, lastMs } = group;
    const { project, keyId } = row;
    const tokens = promptTokens + completionTokens;
    const month = this.#monthNames.at(group.minuteMs);
    const ofQuota = row.points === null ? 1 : 0;
    // Only what is done with a key has a project.
    const ofKeys = project === null ? 0 : ofQuota;
    const sums = [
      requests,
      tokens,
      costNanoUsd,
      ofQuota * tokens,
      ofQuota * costNanoUsd,
      ofKeys * tokens,
      ofKeys * costNanoUsd,
    ];
    this.months.add([userId, month, WHOLE_USER], sums);
    if (project !== null) this.months.add([userId, month, project], sums);
    if (keyId !== null) this.keys.add(keyId, { month, nanoUsd: costNanoUsd, requests, lastUsedMs: lastMs });
  }
}
