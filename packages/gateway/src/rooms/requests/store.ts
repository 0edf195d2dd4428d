import { timeOfId } from "../../kernel/ids.ts";
import type { Database, SqlValue } from "../../storage/contract.ts";
import {
  BUCKETS_MS,
  CACHE_COLUMNS,
  DAY_MS,
  HOUR_MS,
  NO_ID,
  SUM_COLUMNS,
  splitByDay,
  summed,
  type Time,
} from "../usage/index.ts";
import { type Filter, isEveryone, isOfAnyKind, isOfPerson, Sql } from "./filter.ts";
import type { ListedRow } from "./view.ts";

const NOBODY = `'${NO_ID}'`;
const EVERYONE = NOBODY;

/** A list of rare requests looks at this many hours at a time. */
const HOURS_AT_ONCE = 128;
const FAILURES_READ_MAX = 10_000;
const ASKERS_SHOWN_MAX = 20;

export const ASKER_KINDS = ["key", "user", "group", "project", "ref"] as const;
type AskerKind = (typeof ASKER_KINDS)[number];
const named = (column: string, table: string, name: string) => ({
  id: `NULLIF(${column}, ${NOBODY})`,
  name: `(SELECT ${name} FROM ${table} n WHERE n.id = t.id)`,
});
const ASKERS: Readonly<Record<AskerKind, { id: string; name: string }>> = {
  key: named("key_id", "api_keys", "name"),
  user: named("user_id", "users", "email"),
  group: named("group_id", "user_groups", "name"),
  project: { id: "NULLIF(project, '')", name: "t.id" },
  ref: { id: "ref_id", name: "t.id" },
};

export interface Period extends Time {
  grainMs: number;
}

interface Place {
  endedMs: number;
  id: string;
}

export interface Kind {
  surface: string;
  model: string;
  backend: string;
  status: number;
  code: string;
}
const KIND = "surface, model, backend, status, code";

/** `sums` are in the order of `SUM_COLUMNS`. */
export interface KindSums extends Kind {
  sums: number[];
}

export interface KindCount {
  start_ms: number;
  status: number;
  reached: number;
  requests: number;
}
const REACHED = "CASE WHEN COALESCE(backend, '') = '' THEN 0 ELSE 1 END";

export interface AlikeFailures extends Pick<ListedRow, "code" | "status" | "model" | "backend" | "message"> {
  times: number;
  ended_ms: number;
  id: string;
}

const bucketSql = (column: string): string =>
  `CASE ${BUCKETS_MS.map((ms, i) => `WHEN ${column} <= ${ms} THEN ${i}`).join(" ")}
   WHEN ${column} IS NOT NULL THEN ${BUCKETS_MS.length} END`;

export class RequestStore {
  constructor(readonly db: Database) {}

  async find(id: string): Promise<ListedRow | null> {
    return (await this.#named("r.id = $1 AND r.status IS NOT NULL", [id]))[0] ?? null;
  }

  /** By end, then by id, latest first. */
  async list(
    filter: Filter,
    { cursor, limit, ...time }: Time & { cursor: Place | null; limit: number },
  ): Promise<ListedRow[]> {
    const narrowed = await this.#withUser(filter);
    const within = cursor ? { ...time, belowMs: Math.min(time.belowMs, cursor.endedMs + 1) } : time;
    const found: string[] = [];
    for await (const part of this.#partsWith(filter, within)) {
      const sql = new Sql().within("ended_ms", part).ofScope(narrowed).ofKind(filter);
      sql.add("status IS NOT NULL");
      if (cursor) {
        const at = sql.value(cursor.endedMs);
        sql.add(`(ended_ms < ${at} OR id < ${sql.value(cursor.id)})`);
      }
      const rows = await this.db.report<{ id: string }>(
        `SELECT id FROM requests ${sql.where} ORDER BY ended_ms DESC, id DESC LIMIT ${sql.value(limit - found.length)}`,
        sql.params,
      );
      found.push(...rows.map(({ id }) => id));
      if (found.length >= limit) break;
    }
    if (found.length === 0) return [];
    const list = found.map((_, i) => `$${i + 1}`).join(", ");
    return this.#named(`r.id IN (${list}) ORDER BY r.ended_ms DESC, r.id DESC`, found);
  }

  async placeOf(id: string): Promise<Place> {
    const row = await this.db.get<{ ended_ms: number }>("SELECT ended_ms FROM requests WHERE id = $1", [id]);
    return { id, endedMs: row?.ended_ms ?? timeOfId(id) };
  }

  async #named(condition: string, params: readonly SqlValue[]): Promise<ListedRow[]> {
    const rows = await this.db.all<ListedRow>(
      `SELECT r.*, u.email AS user_email, k.name AS key_name FROM requests r
       LEFT JOIN users u ON u.id = r.user_id LEFT JOIN api_keys k ON k.id = r.key_id WHERE ${condition}`,
      params,
    );
    return rows.map((row) => ({
      ...row,
      estimated: Boolean(row.estimated),
      unpriced: Boolean(row.unpriced),
    }));
  }

  /** Adds a key's owner, because the index for a key's requests begins with the user. */
  async #withUser(filter: Filter): Promise<Filter> {
    const { key_id, user_id } = filter;
    if (key_id === undefined || user_id !== undefined) return filter;
    const owner = await this.db.get<{ user_id: string }>(
      `SELECT user_id FROM api_keys WHERE id = $1
       UNION ALL SELECT user_id FROM request_asker_days WHERE key_id = $1 LIMIT 1`,
      [key_id],
    );
    return { ...filter, ...owner };
  }

  /** The parts of a period that may have such requests, newest first: the hours for which there are sums of them. */
  async *#partsWith(filter: Filter, { fromMs, belowMs }: Time): AsyncGenerator<Time> {
    if (isOfAnyKind(filter)) {
      yield { fromMs, belowMs };
      return;
    }
    for (let belowHourMs = belowMs; ; ) {
      const sql = new Sql().add(`grain_ms = ${HOUR_MS}`).add(`user_id = ${EVERYONE}`);
      sql.within("start_ms", { fromMs: fromMs - HOUR_MS + 1, belowMs: belowHourMs });
      sql.ofKind(filter).add("status > 0");
      const hours = await this.db.report<{ start_ms: number }>(
        `SELECT DISTINCT start_ms FROM request_sums ${sql.where} ORDER BY start_ms DESC LIMIT ${HOURS_AT_ONCE}`,
        sql.params,
      );
      for (const { start_ms } of hours)
        yield { fromMs: Math.max(fromMs, start_ms), belowMs: Math.min(belowMs, start_ms + HOUR_MS) };
      if (hours.length < HOURS_AT_ONCE) return;
      belowHourMs = hours.at(-1)!.start_ms;
    }
  }

  /** Sums of a period by kind, and the number of requests by status in each part of it. */
  async sums(filter: Filter, period: Period): Promise<{ kinds: KindSums[]; counts: KindCount[] }> {
    return isEveryone(filter) || (isOfPerson(filter) && period.grainMs === DAY_MS)
      ? this.#summed(filter, period)
      : this.#counted(filter, period);
  }

  async #summed(filter: Filter, { grainMs, ...time }: Period) {
    const sql = new Sql().add(`grain_ms = ${grainMs}`);
    sql.add(`user_id = ${sql.value(filter.user_id ?? NO_ID)}`);
    const from = `FROM request_sums ${sql.within("start_ms", time).ofKind(filter).add("status > 0").where}`;
    const rows = await this.db.report<Kind & Record<string, number>>(
      `SELECT ${KIND}, ${summed(SUM_COLUMNS)} ${from} GROUP BY ${KIND}`,
      sql.params,
    );
    const counts = await this.db.report<KindCount>(
      `SELECT start_ms, status, ${REACHED} AS reached, ${summed(["requests"])} ${from} GROUP BY 1, 2, 3`,
      sql.params,
    );
    return {
      kinds: rows.map((row) => ({ ...row, sums: SUM_COLUMNS.map((column) => row[column]!) })),
      counts,
    };
  }

  async #counted(filter: Filter, { grainMs, ...time }: Period) {
    const sql = new Sql()
      .within("ended_ms", time)
      .ofScope(await this.#withUser(filter))
      .ofKind(filter);
    const rows = await this.db.report<Kind & KindCount & Record<string, number | null>>(
      `SELECT ended_ms - ended_ms % ${grainMs} AS start_ms, COALESCE(surface, '') AS surface,
         COALESCE(model, '') AS model, COALESCE(backend, '') AS backend, status, COALESCE(code, '') AS code,
         ${REACHED} AS reached, ${bucketSql("first_token_ms")} AS first_token, ${bucketSql("duration_ms")} AS duration,
         COUNT(*) AS requests, ${summed(["prompt_tokens", "completion_tokens", "cost_nano_usd", ...CACHE_COLUMNS])}
       FROM requests ${sql.add("status IS NOT NULL").where} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9`,
      sql.params,
    );
    const kinds = rows.map((row) => {
      const buckets = [`first_token_${row.first_token}`, `duration_${row.duration}`];
      const sums = SUM_COLUMNS.map((column) =>
        buckets.includes(column) ? row.requests : (row[column] ?? 0),
      );
      return { ...row, sums };
    });
    return { kinds, counts: rows };
  }

  /** Those with the most requests: whole days from their sums, the rest of a period from its requests. */
  async askers(filter: Filter, by: AskerKind, period: Time): Promise<AskerSums[]> {
    const { id, name } = ASKERS[by];
    const sql = new Sql();
    const hasSums = isOfAnyKind(filter) && filter.ref_id === undefined && by !== "ref";
    const { days, rest } = hasSums ? splitByDay(period) : { days: null, rest: [period] };
    const parts = rest.map((part) => {
      const where = new Sql(sql.params).within("ended_ms", part).ofScope(filter).ofKind(filter);
      return `SELECT ${id} AS id, 1 AS requests, CASE WHEN status >= 400 THEN 1 ELSE 0 END AS unanswered,
          COALESCE(cost_nano_usd, 0) AS cost_nano_usd
        FROM requests ${where.add("status IS NOT NULL").where}`;
    });
    if (days) {
      const where = new Sql(sql.params).within("start_ms", days).ofScope(filter);
      parts.push(`SELECT ${id} AS id, requests - charges_only AS requests, unanswered, cost_nano_usd
        FROM request_asker_days ${where.add("requests > charges_only").where}`);
    }
    return this.db.report<AskerSums>(
      `SELECT t.*, ${name} AS name FROM (
         SELECT id, ${summed(ASKER_TOTALS)} FROM (${parts.join(" UNION ALL ")}) AS parts
         GROUP BY id ORDER BY SUM(requests) DESC, id LIMIT ${ASKERS_SHOWN_MAX}) t ORDER BY t.requests DESC, t.id`,
      sql.params,
    );
  }

  /** The latest failures, equal ones counted as one, so that a flood of one does not hide others. */
  failuresSince(fromMs: number, limit: number): Promise<AlikeFailures[]> {
    const same = "code, status, model, backend, message";
    return this.db.report<AlikeFailures>(
      `SELECT ${same}, COUNT(*) AS times, MAX(ended_ms) AS ended_ms, MAX(id) AS id FROM (
         SELECT ${same}, ended_ms, CAST(id AS TEXT) AS id FROM requests
         WHERE status >= 400 AND status <> 499 AND ended_ms >= $1 ORDER BY ended_ms DESC LIMIT ${FAILURES_READ_MAX}
       ) AS latest GROUP BY ${same} ORDER BY MAX(ended_ms) DESC, MAX(id) DESC LIMIT $2`,
      [fromMs, limit],
    );
  }

  /** Deletes some uncharged requests: those that ended before `beforeMs`, and all but the newest `keptMax`. */
  async deleteUncharged({ beforeMs, keptMax }: { beforeMs: number; keptMax: number }, rowsMax: number) {
    const cut = await this.db.get<{ ended_ms: number }>(
      "SELECT ended_ms FROM requests WHERE channel IS NULL ORDER BY ended_ms DESC LIMIT 1 OFFSET $1",
      [keptMax],
    );
    return this.db.run(
      `DELETE FROM requests WHERE id IN
         (SELECT id FROM requests WHERE channel IS NULL AND ended_ms < $1 ORDER BY ended_ms LIMIT $2)`,
      [Math.max(beforeMs, (cut?.ended_ms ?? -1) + 1), rowsMax],
    );
  }

  /** Deletes the oldest sums: `rowsMax` or slightly more, if there are as many. */
  async deleteSumsBefore(grainMs: number, beforeMs: number, rowsMax: number): Promise<number> {
    const last = await this.db.get<{ start_ms: number }>(
      `SELECT start_ms FROM request_sums WHERE grain_ms = $1 AND user_id = ${EVERYONE} AND start_ms < $2
       ORDER BY start_ms LIMIT 1 OFFSET $3`,
      [grainMs, beforeMs, rowsMax],
    );
    return this.db.run(
      `DELETE FROM request_sums WHERE grain_ms = $1 AND user_id = ${EVERYONE} AND start_ms < $2`,
      [grainMs, last ? last.start_ms + 1 : beforeMs],
    );
  }
}

const ASKER_TOTALS = ["requests", "unanswered", "cost_nano_usd"] as const;

interface AskerSums extends Record<(typeof ASKER_TOTALS)[number], number> {
  id: string | null;
  name: string | null;
}
