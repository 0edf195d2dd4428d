import type { z } from "zod";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import type { Database, Sweep } from "../../storage/contract.ts";
import { monthsBeforeMs } from "./calendar.ts";
import { UsageList } from "./list.ts";
import { UsageQueries } from "./query.ts";
import { clamp, type QueryBody, usageQueryOf } from "./query-params.ts";
import type { MonthKey, MonthTotals } from "./rows.ts";
import { UsageStore } from "./store.ts";

const LIST = { fallback: 50, min: 1, max: 200 };

export interface UsageOptions {
  db: Database;
  clock: Clock;
  /** Whole months before the current one whose rows are kept; null: all. */
  retentionMonths: number | null;
}

/** What was used, by whom and for what. */
export class Usage {
  readonly store: UsageStore;
  readonly #queries: UsageQueries;
  readonly #list: UsageList;
  /**
   * Waits, for a bounded time, until what this process has journaled is in the database, so that people see
   * the request they have just made. Set by the room that writes.
   */
  settled: () => Promise<void> = async () => {};

  constructor(readonly options: UsageOptions) {
    const { db } = options;
    this.store = new UsageStore(db);
    this.#queries = new UsageQueries(db);
    this.#list = new UsageList(db);
  }

  async month(key: MonthKey): Promise<MonthTotals> {
    await this.settled();
    return this.store.month(key);
  }

  async list(
    actor: Actor,
    options: { limit?: number | undefined; offset?: number | undefined; project?: string | undefined },
  ) {
    const limit = clamp(options.limit ?? LIST.fallback, LIST.min, LIST.max);
    const offset = clamp(options.offset ?? 0, 0, Number.MAX_SAFE_INTEGER);
    // Not `??`: the rollups keep the sum of everything under the empty project.
    const project = options.project || null;
    await this.settled();
    const { userId } = actor;
    const fromMs = this.#keptFromMs(this.options.clock.now());
    const [records, total] = await Promise.all([
      this.#list.page({ userId, project, limit, offset, fromMs }),
      this.#list.count({ userId, project, fromMs }),
    ]);
    return { records, total, limit, offset, project };
  }

  #keptFromMs(nowMs: number): number {
    const { retentionMonths } = this.options;
    return retentionMonths === null ? 0 : monthsBeforeMs(nowMs, retentionMonths);
  }

  /** Removes rows of months that are no longer kept. */
  readonly sweepRows: Sweep = async (nowMs, rowsMax) => {
    const fromMs = this.#keptFromMs(nowMs);
    return fromMs === 0 ? 0 : this.store.deleteBefore(isoTime(fromMs), rowsMax);
  };

  /** Answers `POST /api/admin/usage/query`. */
  async query(body: z.output<typeof QueryBody>) {
    const query = usageQueryOf(body);
    await this.settled();
    const keptFromMs = this.#keptFromMs(this.options.clock.now());
    // Sums outlive their rows, so those of earlier months do not say how many rows there are.
    const kept = (query.sinceMs ?? 0) < keptFromMs ? { ...query, sinceMs: keptFromMs } : null;
    const [totals, grouped, records, keptTotals] = await Promise.all([
      this.#queries.totals(query),
      query.groupBy && this.#queries.groups(query, query.groupBy),
      query.includeRecords ? this.#queries.records(kept ?? query) : null,
      query.includeRecords && kept ? this.#queries.totals(kept) : null,
    ]);
    return {
      totals,
      ...(grouped && {
        groups: grouped.groups,
        ...(grouped.truncated && { groups_truncated: true as const }),
      }),
      ...(records && {
        records,
        records_total: (keptTotals ?? totals).requests,
        limit: query.limit,
        offset: query.offset,
      }),
    };
  }
}
