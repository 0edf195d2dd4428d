import type { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import type { Database } from "../../storage/contract.ts";
import type { DetailedRow } from "./methods.ts";
import { NANO_PER_USD, nextMonthMs, utcMonth, WHOLE_USER } from "./rows.ts";
import { conditionsOf, type SeriesFilter } from "./series.ts";

const COLUMNS = `id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_ms, ref_id, api_key_id,
  project, points, account_type, estimated, unpriced, cached_tokens, cache_write_tokens, reasoning_tokens,
  cache_saved_nano_usd`;

interface ListOptions {
  userId: string;
  project: string | null;
  limit: number;
  offset: number;
  /** Start of a month. Earlier rows are out of their retention time and about to be deleted. */
  fromMs: number;
}

type StoredRow = Omit<z.output<typeof DetailedRow>, "created_at" | "cache_saved_usd"> & {
  created_ms: number;
  cache_saved_nano_usd: number;
};

const toListed = ({ created_ms, cache_saved_nano_usd, ...row }: StoredRow) => ({
  ...row,
  cache_saved_usd: cache_saved_nano_usd / NANO_PER_USD,
  created_at: isoTime(created_ms),
  estimated: Boolean(row.estimated),
  unpriced: Boolean(row.unpriced),
});

interface MonthRows {
  month: string;
  requests: number;
}

const startOf = (month: string): number => Date.parse(`${month}-01T00:00:00Z`);

/** Skips and counts rows by the sums of months: counting the rows would take longer with every request. */
export async function usagePage(db: Database, options: ListOptions) {
  const { userId, project, limit, fromMs } = options;
  const sums = await db.all<MonthRows>(
    `SELECT month, requests FROM usage_months WHERE user_id = $1 AND project = $2 AND month >= $3
     ORDER BY month DESC`,
    [userId, project ?? WHOLE_USER, utcMonth(fromMs)],
  );
  const total = sums.reduce((sum, { requests }) => sum + requests, 0);
  const months = monthsOf(sums, options);
  if (!months) return { records: [], total };
  const narrowed = project === null ? "" : "AND project = $6";
  const rows = await db.report<StoredRow>(
    `SELECT ${COLUMNS} FROM usage_records
     WHERE user_id = $1 AND created_ms >= $2 AND created_ms < $3 ${narrowed}
     ORDER BY created_ms DESC, id LIMIT $4 OFFSET $5`,
    [userId, months.fromMs, months.toMs, limit, months.offset, ...(project === null ? [] : [project])],
  );
  return { records: rows.map(toListed), total };
}

/** Newest first; rows of the same instant by id. */
export async function usagePageAfter(
  db: Database,
  filter: SeriesFilter,
  { after, limit }: { after: { atMs: number; id: string } | null; limit: number },
) {
  const sql = conditionsOf(filter);
  if (after) {
    const at = sql.value(after.atMs);
    sql.add(`created_ms <= ${at} AND (created_ms < ${at} OR id > ${sql.value(after.id)})`);
  }
  const rows = await db.report<StoredRow>(
    `SELECT ${COLUMNS} FROM usage_records ${sql.where} ORDER BY created_ms DESC, id LIMIT ${sql.value(limit)}`,
    sql.params,
  );
  return rows.map(toListed);
}

/** The months that the page is in, and how many of their rows come before it. Null: the page is empty. */
function monthsOf(sums: readonly MonthRows[], { limit, offset, fromMs }: ListOptions) {
  let end = 0;
  const months = sums.map(({ month, requests }) => {
    const start = end;
    end += requests;
    return { month, start, end };
  });
  const [newest, ...more] = months.filter((each) => each.end > offset && each.start < offset + limit);
  if (!newest) return null;
  return {
    fromMs: Math.max(fromMs, startOf((more.at(-1) ?? newest).month)),
    // No upper bound: a row that is written meanwhile may be shown.
    toMs: newest.start === 0 ? Number.MAX_SAFE_INTEGER : nextMonthMs(startOf(newest.month)),
    offset: offset - newest.start,
  };
}
