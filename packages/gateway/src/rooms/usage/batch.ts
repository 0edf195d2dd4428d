import { isoTime } from "../../kernel/clock.ts";
import { KeySums } from "./key-spend.ts";
import { type UsageRow, WHOLE_USER } from "./rows.ts";
import { Sums } from "./sums.ts";

/** An instant as text, with its month and day. */
interface Stamp {
  ms: number;
  text: string;
  month: string;
  day: string;
}

/** The stamp of `ms`; what it has in common with the one before is taken from there. */
function stampOf(ms: number, before: Stamp | null): Stamp {
  if (before?.ms === ms) return before;
  const text = isoTime(ms);
  if (before && text.startsWith(before.day)) return { ...before, ms, text };
  return { ms, text, month: text.slice(0, 7), day: text.slice(0, 10) };
}

/** Rows that count in the same places, added up. */
interface Group {
  /** One of them. */
  row: UsageRow;
  month: string;
  day: string;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  costNanoUsd: number;
  unpriced: number;
  lastUsedMs: number;
}

const countsIn = ({ row, day }: Group, other: UsageRow, dayOfOther: string): boolean =>
  day === dayOfOther &&
  row.userId === other.userId &&
  row.keyId === other.keyId &&
  row.project === other.project &&
  row.model === other.model &&
  row.backend === other.backend &&
  (row.refId === null) === (other.refId === null) &&
  (row.points === null) === (other.points === null);

/** What a batch of rows adds to the rollups. Rows are grouped first: a batch has many of one key, which differ little. */
export class Batch {
  readonly months = new Sums();
  readonly days = new Sums();
  readonly refDays = new Sums();
  readonly keyDays = new Sums();
  readonly keys = new KeySums();
  /** By `apiKeyId`: of each there are as many as the key has used models, or a few more. */
  readonly #groups = new Map<string, Group[]>();
  #stamp: Stamp | null = null;

  /** Returns the row's time as text. */
  add(row: UsageRow): string {
    const stamp = stampOf(row.createdAtMs, this.#stamp);
    this.#stamp = stamp;
    const group = this.#groupOf(row, stamp);
    group.requests++;
    group.promptTokens += row.promptTokens;
    group.completionTokens += row.completionTokens;
    group.costNanoUsd += row.costNanoUsd ?? 0;
    if (row.costNanoUsd === null) group.unpriced++;
    if (row.createdAtMs > group.lastUsedMs) group.lastUsedMs = row.createdAtMs;
    if (row.refId !== null) {
      const tokens = row.promptTokens + row.completionTokens;
      const sums = [1, row.promptTokens, row.completionTokens, tokens, row.costNanoUsd ?? 0];
      this.refDays.add([row.refId, stamp.day, row.model, row.backend], sums);
    }
    return stamp.text;
  }

  #groupOf(row: UsageRow, { month, day }: Stamp): Group {
    let groups = this.#groups.get(row.apiKeyId);
    if (!groups) {
      groups = [];
      this.#groups.set(row.apiKeyId, groups);
    }
    for (const group of groups) if (countsIn(group, row, day)) return group;
    const sums = {
      requests: 0,
      promptTokens: 0,
      completionTokens: 0,
      costNanoUsd: 0,
      unpriced: 0,
      lastUsedMs: 0,
    };
    const group = { row, month, day, ...sums };
    groups.push(group);
    return group;
  }

  /** To be called once, when all rows are added. */
  rollUp(): this {
    for (const groups of this.#groups.values()) for (const group of groups) this.#rollUp(group);
    return this;
  }

  #rollUp({
    row,
    month,
    day,
    requests,
    promptTokens,
    completionTokens,
    costNanoUsd,
    unpriced,
    lastUsedMs,
  }: Group): void {
    const tokens = promptTokens + completionTokens;
    const ofQuota = row.points === null ? 1 : 0;
    // Only what is done with a key has a project.
    const ofKeys = row.project === null ? 0 : ofQuota;
    const monthSums = [
      requests,
      tokens,
      costNanoUsd,
      ofQuota * tokens,
      ofQuota * costNanoUsd,
      ofKeys * tokens,
      ofKeys * costNanoUsd,
    ];
    this.months.add([row.userId, month, WHOLE_USER], monthSums);
    if (row.project !== null) this.months.add([row.userId, month, row.project], monthSums);
    const daySums = [requests, promptTokens, completionTokens, tokens, costNanoUsd];
    this.days.add([day, row.model, row.backend, row.refId !== null], daySums);
    const keyDaySums = [requests, promptTokens, completionTokens, costNanoUsd, unpriced];
    this.keyDays.add([day, row.apiKeyId, row.project ?? WHOLE_USER, row.userId], keyDaySums);
    if (row.keyId !== null) this.keys.add(row.keyId, { month, nanoUsd: costNanoUsd, requests, lastUsedMs });
  }
}
