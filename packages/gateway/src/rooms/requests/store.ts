import { type Database, insertRows, type SqlValue, selectIn } from "../../storage/contract.ts";
import { type Asker, type Facet, factsOf, firstIdAt, HOUR_MS, type RecordRow, SUM_COLUMNS } from "./rows.ts";
import { type SumRow, sumsOf } from "./sums.ts";

const RECORDS = "request_records (id, asker_id, facet_id, facts)";
const FACETS = "request_facets (id, surface, model, backend, status, code)";
const ASKERS = "request_askers (id, user_id, key_id, group_id, project, key_prefix)";
/** A table of sums: inserting what exists adds to it. */
function sumTable(table: string, keys: readonly string[]) {
  const added = SUM_COLUMNS.map((column) => `${column} = ${table}.${column} + excluded.${column}`);
  return {
    into: `${table} (${[...keys, ...SUM_COLUMNS].join(", ")})`,
    adding: `ON CONFLICT (${keys.join(", ")}) DO UPDATE SET ${added.join(", ")}`,
  };
}
const SUMS = sumTable("request_sums", ["grain_ms", "start_ms", "facet_id"]);
const ASKER_SUMS = sumTable("request_asker_sums", ["grain_ms", "start_ms", "asker_id", "facet_id"]);
const ONCE = "ON CONFLICT (id) DO NOTHING";

/** Which requests are asked for; null members ask for all. */
export interface Filter {
  surface: string | null;
  model: string | null;
  backend: string | null;
  code: string | null;
  outcome: Outcome | null;
  scope: Scope;
}

export const OUTCOMES = ["ok", "refused", "failed", "left"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Whose requests: everyone's, or those of a user, a group or a key; the last may narrow the others. */
export interface Scope {
  userId: string | null;
  groupId: string | null;
  keyId: string | null;
}

export interface ListedRecord {
  id: string;
  surface: string;
  model: string;
  backend: string;
  status: number;
  code: string;
  user_id: string | null;
  user_email: string | null;
  key_id: string | null;
  key_prefix: string | null;
  key_name: string | null;
  group_id: string | null;
  project: string | null;
  /** `Facts` as JSON. */
  facts: string;
}

const listedFrom = (
  source: string,
) => `SELECT r.id, f.surface, f.model, f.backend, f.status, f.code, a.user_id, u.email AS user_email, a.key_id,
    a.key_prefix, k.name AS key_name, a.group_id, a.project, r.facts
  FROM ${source} r
  JOIN request_facets f ON f.id = r.facet_id
  JOIN request_askers a ON a.id = r.asker_id
  LEFT JOIN users u ON u.id = a.user_id
  LEFT JOIN api_keys k ON k.id = a.key_id`;

/** By HTTP status: what the client did wrong or may not do, what went wrong here or upstream, and clients that left. */
const OUTCOME_SQL: Record<Outcome, string> = {
  ok: "status < 400",
  refused: "status >= 400 AND status < 500 AND status <> 499",
  failed: "status >= 500",
  left: "status = 499",
};

/** Conditions and their values in placeholder order. */
class Sql {
  readonly params: SqlValue[] = [];
  readonly #conditions: string[] = [];

  value(value: SqlValue): string {
    return `$${this.params.push(value)}`;
  }
  add(condition: string): this {
    this.#conditions.push(condition);
    return this;
  }
  get where(): string {
    return `WHERE ${this.#conditions.join(" AND ")}`;
  }

  /** Only rows whose `column` names a row of `table` that has these values; null members do not matter. */
  naming(
    column: string,
    table: string,
    has: Record<string, string | null>,
    more: string | null = null,
  ): this {
    const given = Object.entries(has).filter(([, value]) => value !== null);
    const conditions = given.map(([name, value]) => `${name} = ${this.value(value)}`);
    if (more !== null) conditions.push(more);
    if (conditions.length > 0)
      this.add(`${column} IN (SELECT id FROM ${table} WHERE ${conditions.join(" AND ")})`);
    return this;
  }

  matching({ scope, surface, model, backend, code, outcome }: Filter): this {
    const facet = { surface, model, backend, code };
    this.naming("facet_id", "request_facets", facet, outcome && OUTCOME_SQL[outcome]);
    const { userId, groupId, keyId } = scope;
    return this.naming("asker_id", "request_askers", { user_id: userId, group_id: groupId, key_id: keyId });
  }
}

/** Requests of a period, newest first. Bounds are ids: from, inclusive, and below, exclusive. */
interface IdRange {
  fromId: string;
  belowId: string;
}

export interface Period {
  grainMs: number;
  fromMs: number;
  belowMs: number;
}

/** Sums of a period: of everyone together, or of each asker where some are left out or told apart. */
function sumsIn(filter: Filter, { grainMs, fromMs, belowMs }: Period, { isByAsker = false } = {}) {
  const sql = new Sql();
  sql.add(`grain_ms = ${sql.value(grainMs)}`);
  sql.add(`start_ms >= ${sql.value(fromMs)}`).add(`start_ms < ${sql.value(belowMs)}`);
  sql.matching(filter);
  const table = isEveryone(filter.scope) && !isByAsker ? "request_sums" : "request_asker_sums";
  return { sql, from: `FROM ${table} ${sql.where}` };
}

const isEveryone = ({ userId, groupId, keyId }: Scope): boolean =>
  userId === null && groupId === null && keyId === null;

/** SQL of request records and of their sums, which change only together. */
export class RequestStore {
  constructor(readonly db: Database) {}

  /** Which of these have been written already. */
  async existing(ids: readonly string[]): Promise<Set<string>> {
    const rows = await selectIn<{ id: string }>(
      this.db,
      (list) => `SELECT id FROM request_records WHERE id IN ${list}`,
      ids,
    );
    return new Set(rows.map(({ id }) => id));
  }

  async insert({
    rows,
    facets,
    askers,
    mayExist,
  }: {
    rows: readonly RecordRow[];
    /** Some of them may have been written by another process meanwhile. */
    mayExist: boolean;
    facets: readonly Facet[];
    askers: readonly Asker[];
  }): Promise<void> {
    await this.db.transaction(async (tx) => {
      const ofFacet = ({ id, surface, model, backend, status, code }: Facet) => [
        id,
        surface,
        model,
        backend,
        status,
        code,
      ];
      const ofAsker = ({ id, userId, keyId, groupId, project, keyPrefix }: Asker) => [
        id,
        userId,
        keyId,
        groupId,
        project,
        keyPrefix,
      ];
      await insertRows(tx, FACETS, facets.map(ofFacet), ONCE);
      await insertRows(tx, ASKERS, askers.map(ofAsker), ONCE);
      const ofRecord = (row: RecordRow) => [row.id, row.askerId, row.facetId, factsOf(row)];
      await insertRows(tx, RECORDS, rows.map(ofRecord), mayExist ? ONCE : "");
      const sums = sumsOf(rows);
      const ofAskers = sums.filter(({ askerId }) => askerId !== null).map(sumValues);
      await insertRows(tx, ASKER_SUMS.into, ofAskers, ASKER_SUMS.adding);
      // Every instance adds to the same few rows, so they are locked last and for the shortest time.
      const ofEveryone = sums.filter(({ askerId }) => askerId === null).map(sumValues);
      await insertRows(tx, SUMS.into, ofEveryone, SUMS.adding);
    });
  }

  /** All that have been seen; there are few. */
  facets(): Promise<Facet[]> {
    return this.db.all<Facet>("SELECT id, surface, model, backend, status, code FROM request_facets");
  }

  /** Hours of the period that hold such requests, newest first. */
  async hours(
    filter: Filter,
    { fromMs, belowMs, limit }: { fromMs: number; belowMs: number; limit: number },
  ): Promise<number[]> {
    const { sql, from } = sumsIn(filter, { grainMs: HOUR_MS, fromMs: fromMs - HOUR_MS + 1, belowMs });
    const hours = await this.db.all<{ start_ms: number }>(
      `SELECT DISTINCT start_ms ${from} ORDER BY start_ms DESC LIMIT ${sql.value(limit)}`,
      sql.params,
    );
    return hours.map(({ start_ms }) => start_ms);
  }

  list(filter: Filter, { fromId, belowId, limit }: IdRange & { limit: number }): Promise<ListedRecord[]> {
    const sql = new Sql();
    sql
      .add(`id >= ${sql.value(fromId)}`)
      .add(`id < ${sql.value(belowId)}`)
      .matching(filter);
    // The page is cut before anything is joined to it.
    const page = `SELECT * FROM request_records ${sql.where} ORDER BY id DESC LIMIT ${sql.value(limit)}`;
    return this.db.all<ListedRecord>(`${listedFrom(`(${page})`)} ORDER BY r.id DESC`, sql.params);
  }

  find(id: string): Promise<ListedRecord | null> {
    return this.db.get<ListedRecord>(`${listedFrom("request_records")} WHERE r.id = $1`, [id]);
  }

  /** Sums of a period by facet. */
  sums(filter: Filter, period: Period): Promise<({ facet_id: number } & Record<string, number>)[]> {
    const { sql, from } = sumsIn(filter, period);
    const sums = SUM_COLUMNS.map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`);
    return this.db.all(`SELECT facet_id, ${sums.join(", ")} ${from} GROUP BY facet_id`, sql.params);
  }

  /** How many requests of each facet came in each part of a period. */
  bins(filter: Filter, period: Period): Promise<{ start_ms: number; facet_id: number; requests: number }[]> {
    const { sql, from } = sumsIn(filter, period);
    return this.db.all(
      `SELECT start_ms, facet_id, CAST(SUM(requests) AS BIGINT) AS requests ${from}
       GROUP BY start_ms, facet_id`,
      sql.params,
    );
  }

  /** The askers with the most requests. */
  askers(filter: Filter, period: Period, limit: number): Promise<AskerSums[]> {
    const { sql, from } = sumsIn(filter, period, { isByAsker: true });
    const summed = ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd"]
      .map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`)
      .join(", ");
    const top = `SELECT asker_id, ${summed},
        CAST(SUM(CASE WHEN facet_id IN (SELECT id FROM request_facets WHERE status >= 400) THEN requests ELSE 0 END)
          AS BIGINT) AS unanswered
      ${from} GROUP BY asker_id ORDER BY SUM(requests) DESC, asker_id LIMIT ${sql.value(limit)}`;
    return this.db.all<AskerSums>(
      `SELECT t.requests, t.unanswered, t.prompt_tokens, t.completion_tokens, t.cost_nano_usd,
         a.user_id, a.key_id, a.key_prefix, k.name AS key_name, u.email AS user_email
       FROM (${top}) t JOIN request_askers a ON a.id = t.asker_id
       LEFT JOIN users u ON u.id = a.user_id LEFT JOIN api_keys k ON k.id = a.key_id
       ORDER BY t.requests DESC`,
      sql.params,
    );
  }

  /** The id of the record that has so many newer ones; null when there are fewer. */
  async idAfterNewest(count: number): Promise<string | null> {
    const row = await this.db.get<{ id: string }>(
      "SELECT id FROM request_records ORDER BY id DESC LIMIT 1 OFFSET $1",
      [count],
    );
    return row?.id ?? null;
  }

  /** Deletes some of the records up to this one. */
  deleteUpTo(id: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM request_records WHERE id IN
         (SELECT id FROM request_records WHERE id <= $1 ORDER BY id LIMIT $2)`,
      [id, rowsMax],
    );
  }

  deleteBefore(beforeMs: number, rowsMax: number): Promise<number> {
    return this.deleteUpTo(firstIdAt(beforeMs), rowsMax);
  }

  /** Deletes sums of the oldest times: about as many as `rowsMax`, and at least that many where there are. */
  async deleteSumsBefore(grainMs: number, beforeMs: number, rowsMax: number): Promise<number> {
    let removed = 0;
    for (const table of ["request_asker_sums", "request_sums"]) {
      if (removed >= rowsMax) break;
      const last = await this.db.get<{ start_ms: number }>(
        `SELECT start_ms FROM ${table} WHERE grain_ms = $1 AND start_ms < $2 ORDER BY start_ms LIMIT 1 OFFSET $3`,
        [grainMs, beforeMs, rowsMax],
      );
      removed += await this.db.run(`DELETE FROM ${table} WHERE grain_ms = $1 AND start_ms < $2`, [
        grainMs,
        last ? last.start_ms + 1 : beforeMs,
      ]);
    }
    return removed;
  }
}

interface AskerSums {
  requests: number;
  unanswered: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_nano_usd: number;
  user_id: string | null;
  user_email: string | null;
  key_id: string | null;
  key_prefix: string | null;
  key_name: string | null;
}

const sumValues = ({ grainMs, startMs, askerId, facetId, sums }: SumRow): SqlValue[] => [
  grainMs,
  startMs,
  ...(askerId === null ? [] : [askerId]),
  facetId,
  ...sums,
];
