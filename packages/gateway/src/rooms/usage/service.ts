import type { z } from "zod";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import { usagePage, usagePageAfter } from "./list.ts";
import { CacheWatch } from "./lost-caches.ts";
import type { Filter } from "./methods.ts";
import { clamp, type QueryBody, usageGroups, usageQueryOf, usageRows, usageTotals } from "./query.ts";
import { type MonthKey, type MonthTotals, monthsBeforeMs } from "./rows.ts";
import { readSeries, type SeriesBy, type SeriesFilter } from "./series.ts";
import { UsageStore } from "./store.ts";

const LIST = { fallback: 50, min: 1, max: 200 };
const PAGE = { fallback: 50, min: 1, max: 500 };

type Wanted = z.output<typeof Filter>;

function filterOf(actor: Actor, wanted: Wanted): SeriesFilter {
  if (wanted.everyone && !actor.isAdmin)
    fail("admin_required", "admin access required: everyone's usage is for administrators");
  return {
    userId: wanted.everyone ? (wanted.user_id ?? null) : actor.userId,
    fromMs: wanted.since,
    belowMs: wanted.until,
    project: wanted.project || null,
    model: wanted.model || null,
    backend: wanted.backend || null,
    apiKeyId: wanted.api_key_id || null,
    groupId: wanted.group_id ?? null,
    refId: wanted.ref_id || null,
  };
}

const CURSOR = /^(\d{1,15})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

function parseCursor(cursor: string): { atMs: number; id: string } {
  const [, ms, id] =
    CURSOR.exec(cursor) ?? fail("invalid_params", "`cursor` must be `next_cursor` of a page");
  return { atMs: Number(ms), id: id! };
}

export interface UsageOptions extends Needs<"db" | "clock"> {
  /** Whole months before the current one whose rows are kept; null: all. */
  settings: { readonly usageRetentionMonths: number | null };
}

export class Usage {
  readonly store: UsageStore;
  readonly cacheWatch: CacheWatch;
  /** Waits, for a bounded time, until the journal is in the database. Set by the metering room. */
  settled: () => Promise<void> = async () => {};

  constructor(readonly options: UsageOptions) {
    const { db, clock } = options;
    this.store = new UsageStore(db);
    this.cacheWatch = new CacheWatch(db, clock);
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
    // Not `??`: the empty project stands for the sums of the whole user.
    const project = options.project || null;
    await this.settled();
    const { userId } = actor;
    const fromMs = this.#keptFromMs(this.options.clock.now());
    const page = await usagePage(this.options.db, { userId, project, limit, offset, fromMs });
    return { ...page, limit, offset, project };
  }

  async series(actor: Actor, wanted: Wanted & { by: SeriesBy }) {
    const filter = filterOf(actor, wanted);
    await this.settled();
    return readSeries(this.options.db, filter, wanted.by);
  }

  async records(actor: Actor, wanted: Wanted & { limit?: number | undefined; cursor?: string | undefined }) {
    const filter = filterOf(actor, wanted);
    const limit = clamp(wanted.limit ?? PAGE.fallback, PAGE.min, PAGE.max);
    const after = wanted.cursor === undefined ? null : parseCursor(wanted.cursor);
    await this.settled();
    const found = await usagePageAfter(this.options.db, filter, { after, limit: limit + 1 });
    const records = found.slice(0, limit);
    const last = records.at(-1);
    const next_cursor = found.length > limit && last ? `${Date.parse(last.created_at)}_${last.id}` : null;
    return { records, next_cursor };
  }

  #keptFromMs(nowMs: number): number {
    const { usageRetentionMonths: months } = this.options.settings;
    return months === null ? 0 : monthsBeforeMs(nowMs, months);
  }

  readonly sweepRows: Sweep = async (nowMs, rowsMax) => {
    const fromMs = this.#keptFromMs(nowMs);
    return fromMs === 0 ? 0 : this.store.deleteBefore(fromMs, rowsMax);
  };

  async query(body: z.output<typeof QueryBody>) {
    const query = usageQueryOf(body);
    await this.settled();
    const { db, clock } = this.options;
    const keptFromMs = this.#keptFromMs(clock.now());
    // Sums outlive their rows, so the number of rows comes from the months whose rows are kept.
    const kept = query.fromMs < keptFromMs ? { ...query, fromMs: keptFromMs } : null;
    const [totals, grouped, records, keptTotals] = await Promise.all([
      usageTotals(db, query),
      query.groupBy && usageGroups(db, query, query.groupBy),
      query.includeRecords ? usageRows(db, kept ?? query) : null,
      query.includeRecords && kept ? usageTotals(db, kept) : null,
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
