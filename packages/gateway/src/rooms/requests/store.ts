import { nextTurn } from "../../kernel/turns.ts";
import {
  Attempts,
  type Database,
  insertRows,
  type SqlValue,
  type Transaction,
} from "../../storage/contract.ts";
import { insertBlocks, newestBlocks } from "./block-store.ts";
import type { Block } from "./blocks.ts";
import { type Filter, isEveryone, Sql } from "./filter.ts";
import { deleteMarks, insertMarks, type MarkedTime, type Marks, marksIn, sweepMarks } from "./marks.ts";
import { type Asker, DAY_MS, type Facet, firstIdAt, HOUR_MS, MINUTE_MS, SUM_COLUMNS } from "./rows.ts";
import type { SumRow, Sums } from "./sums.ts";

const FACETS = "request_facets (id, surface, model, backend, status, code)";
const ASKERS = "request_askers (id, user_id, key_id, group_id, project, key_prefix)";
interface SumTable {
  keys: readonly string[];
  sums?: readonly string[];
  /** Columns that are not added up, and how each is brought up to date. */
  others?: Readonly<Record<string, string>>;
}

/** A table of sums: inserting what exists adds to it. */
function sumTable(table: string, { keys, sums = SUM_COLUMNS, others = {} }: SumTable) {
  const added = sums.map((column) => `${column} = ${table}.${column} + excluded.${column}`);
  const changed = Object.entries(others).map(([column, to]) => `${column} = ${to}`);
  return {
    into: `${table} (${[...keys, ...sums, ...Object.keys(others)].join(", ")})`,
    adding: `ON CONFLICT (${keys.join(", ")}) DO UPDATE SET ${[...added, ...changed].join(", ")}`,
  };
}
const SUMS = sumTable("request_sums", { keys: ["grain_ms", "start_ms", "facet_id"] });
/** Null, which is not known, stays null: comparing with it is not true. */
const ASKER_SUMS = sumTable("request_asker_sums", {
  keys: ["grain_ms", "start_ms", "asker_id", "facet_id"],
  others: {
    first_ms:
      "CASE WHEN excluded.first_ms < request_asker_sums.first_ms THEN excluded.first_ms ELSE request_asker_sums.first_ms END",
    last_ms:
      "CASE WHEN excluded.last_ms > request_asker_sums.last_ms THEN excluded.last_ms ELSE request_asker_sums.last_ms END",
  },
});
const ASKER_TOTALS = ["requests", "unanswered", "prompt_tokens", "completion_tokens", "cost_nano_usd"];
const ASKER_DAYS = sumTable("request_asker_days", { keys: ["start_ms", "asker_id"], sums: ASKER_TOTALS });
/** Few enough that adding them takes a millisecond or two. */
const SUMS_PER_TURN = 128;

/** Streams go first: there may be thousands of sums. */
async function insertInTurns(
  tx: Transaction,
  table: ReturnType<typeof sumTable>,
  rows: Iterator<SqlValue[], unknown>,
) {
  for (;;) {
    const some: SqlValue[][] = [];
    for (let row = rows.next(); !row.done; row = rows.next())
      if (some.push(row.value) === SUMS_PER_TURN) break;
    await insertRows(tx, table.into, some, table.adding);
    if (some.length < SUMS_PER_TURN) return;
    await nextTurn();
  }
}

const byId = (a: { id: number }, b: { id: number }): number => a.id - b.id;

/** Blocks that are counted to find the cut: a millisecond or so. */
const COUNTED_BLOCKS_MAX = 5_000;

export interface Period {
  grainMs: number;
  fromMs: number;
  belowMs: number;
}

/** Sums of a period: of everyone together, or of each asker where some are left out or told apart. */
function sumsIn(
  filter: Filter,
  { grainMs, fromMs, belowMs }: Period,
  { isByAsker = false, params }: { isByAsker?: boolean; params?: SqlValue[] } = {},
) {
  const sql = new Sql(params);
  sql.add(`grain_ms = ${sql.value(grainMs)}`);
  sql.add(`start_ms >= ${sql.value(fromMs)}`).add(`start_ms < ${sql.value(belowMs)}`);
  sql.matching(filter);
  const table = isEveryone(filter.scope) && !isByAsker ? "request_sums" : "request_asker_sums";
  return { sql, from: `FROM ${table} ${sql.where}` };
}

const isOfAnyFacet = ({ surface, model, backend, code, outcome }: Filter): boolean =>
  [surface, model, backend, code, outcome].every((member) => member === null);

/** The whole days of a period, and what is left of it at its ends. */
function splitByDay(period: Period): { days: Omit<Period, "grainMs"> | null; rest: Period[] } {
  const { grainMs, fromMs, belowMs } = period;
  const firstDay = Math.ceil(fromMs / DAY_MS) * DAY_MS;
  const endDay = Math.floor(belowMs / DAY_MS) * DAY_MS;
  if (firstDay >= endDay) return { days: null, rest: [period] };
  const ends = [
    { grainMs, fromMs, belowMs: firstDay },
    { grainMs, fromMs: endDay, belowMs },
  ];
  return {
    days: { fromMs: firstDay, belowMs: endDay },
    rest: ends.filter((end) => end.fromMs < end.belowMs),
  };
}

/** SQL of request records and of their sums, which change only together. */
export class RequestStore {
  readonly #attempts: Attempts<Sums>;

  constructor(readonly db: Database) {
    this.#attempts = new Attempts(db);
  }

  async insert({
    blocks,
    facets,
    askers,
    marks = [],
  }: {
    /** Those that are there already are passed over: whether an earlier attempt was committed may not be known. */
    blocks: readonly Block[];
    /** Lists find records by these until their sums are added. */
    marks?: readonly Marks[];
    facets: readonly Facet[];
    askers: readonly Asker[];
  }): Promise<void> {
    const insertAll = async (tx: Transaction) => {
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
      await insertMarks(tx, marks);
      // Two instances that first see the same ones then lock them in the same order.
      await insertRows(tx, FACETS, facets.toSorted(byId).map(ofFacet), "ON CONFLICT (id) DO NOTHING");
      await insertRows(tx, ASKERS, askers.toSorted(byId).map(ofAsker), "ON CONFLICT (id) DO NOTHING");
      await insertBlocks(tx, blocks);
    };
    // No money is in them, and the event loop would wait for the disk.
    await this.db.transaction(insertAll, { isUnsynced: true });
  }

  /**
   * Adds these to the sums in the database, which then need no marks of this writer any more. The same ones may be
   * given again after an outage: they are added once.
   */
  async addSums(sums: Sums, { unmarkedId = null }: { unmarkedId?: string | null } = {}): Promise<void> {
    if ((await this.#attempts.notCommitted([sums])).length === 0) return;
    await this.db.transaction(
      async (tx) => {
        await this.#attempts.note(tx, [sums]);
        const ofAskers = sums.ofAskers().map((sum) => [...sumValues(sum), sum.firstMs, sum.lastMs]);
        await insertInTurns(tx, ASKER_SUMS, ofAskers);
        await insertInTurns(tx, ASKER_DAYS, sums.askerDays());
        // Every instance adds to the same few rows, so they are locked last and for the shortest time.
        await insertInTurns(tx, SUMS, sums.ofEveryone().map(sumValues).values());
        if (unmarkedId) await deleteMarks(tx, unmarkedId);
      },
      { isUnsynced: true },
    );
  }

  /** Times that may hold requests which are not in the sums. To be read before the sums: then each is in one of them. */
  marks(within: { fromMs: number; belowMs: number }): Promise<MarkedTime[]> {
    return marksIn(this.db, within);
  }

  sweepMarks(limits: { beforeMs: number; newId: string }): Promise<number> {
    return sweepMarks(this.db, limits);
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

  /** The same for an asker: when its first and last request of each hour came, as far as is known. */
  hoursOfAsker(
    filter: Filter,
    { fromMs, belowMs, limit }: { fromMs: number; belowMs: number; limit: number },
  ): Promise<{ start_ms: number; first_ms: number; last_ms: number }[]> {
    const { sql, from } = sumsIn(filter, { grainMs: HOUR_MS, fromMs: fromMs - HOUR_MS + 1, belowMs });
    const end = `start_ms + ${HOUR_MS - 1}`;
    return this.db.all(
      `SELECT start_ms, CAST(MIN(COALESCE(first_ms, start_ms)) AS BIGINT) AS first_ms,
         CAST(MAX(COALESCE(last_ms, ${end})) AS BIGINT) AS last_ms
       ${from} GROUP BY start_ms ORDER BY start_ms DESC LIMIT ${sql.value(limit)}`,
      sql.params,
    );
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

  /** The askers with the most requests: of whole days from sums without facets, which are fewer. */
  askers(filter: Filter, period: Period, limit: number): Promise<AskerSums[]> {
    const sql = new Sql();
    const { days, rest } = isOfAnyFacet(filter) ? splitByDay(period) : { days: null, rest: [period] };
    const parts = rest.map((part) => {
      const { from } = sumsIn(filter, part, { isByAsker: true, params: sql.params });
      return `SELECT asker_id, requests,
          CASE WHEN facet_id IN (SELECT id FROM request_facets WHERE status >= 400) THEN requests ELSE 0 END AS unanswered,
          prompt_tokens, completion_tokens, cost_nano_usd ${from}`;
    });
    if (days) {
      const part = new Sql(sql.params);
      part.add(`start_ms >= ${part.value(days.fromMs)}`).add(`start_ms < ${part.value(days.belowMs)}`);
      part.ofScope(filter.scope);
      parts.push(`SELECT asker_id, ${ASKER_TOTALS.join(", ")} FROM request_asker_days ${part.where}`);
    }
    const summed = ASKER_TOTALS.map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`).join(", ");
    const top = `SELECT asker_id, ${summed} FROM (${parts.join(" UNION ALL ")}) AS parts
      GROUP BY asker_id ORDER BY SUM(requests) DESC, asker_id LIMIT ${sql.value(limit)}`;
    return this.db.all<AskerSums>(
      `SELECT t.requests, t.unanswered, t.prompt_tokens, t.completion_tokens, t.cost_nano_usd,
         a.user_id, a.key_id, a.key_prefix, k.name AS key_name, u.email AS user_email
       FROM (${top}) t JOIN request_askers a ON a.id = t.asker_id
       LEFT JOIN users u ON u.id = a.user_id LEFT JOIN api_keys k ON k.id = a.key_id
       ORDER BY t.requests DESC`,
      sql.params,
    );
  }

  /**
   * The id of the block that has so many newer requests, or up to a block more; null when there are fewer. Sums say in which hour and minute it lies, because counting all blocks would take a while. In a minute
   * with very many, all of them are spared.
   */
  async idAfterNewest(count: number): Promise<string | null> {
    const hour = await this.#partAfterNewest(HOUR_MS, { fromMs: 0, belowMs: Number.MAX_SAFE_INTEGER }, count);
    if (!hour) return null;
    // Sums by minute of older hours are gone.
    const minute = await this.#partAfterNewest(MINUTE_MS, hour, count - hour.newer);
    const { fromMs, belowMs } = minute ?? hour;
    const blocks = await newestBlocks(this.db, firstIdAt(belowMs), COUNTED_BLOCKS_MAX);
    let newer = hour.newer + (minute?.newer ?? 0);
    for (const { first_id, requests } of blocks) {
      if (newer >= count) return first_id;
      newer += requests;
    }
    return firstIdAt(fromMs);
  }

  /** The part of a period before which fewer than `count` newer requests lie, and with which there are more. */
  async #partAfterNewest(grainMs: number, { fromMs, belowMs }: Omit<Period, "grainMs">, count: number) {
    const parts = await this.db.all<{ start_ms: number; requests: number }>(
      `SELECT start_ms, CAST(SUM(requests) AS BIGINT) AS requests FROM request_sums
       WHERE grain_ms = $1 AND start_ms >= $2 AND start_ms < $3 GROUP BY start_ms ORDER BY start_ms DESC`,
      [grainMs, fromMs, belowMs],
    );
    let newer = 0;
    for (const { start_ms, requests } of parts) {
      if (newer + requests > count) return { fromMs: start_ms, belowMs: start_ms + grainMs, newer };
      newer += requests;
    }
    return null;
  }

  /** Deletes sums of the oldest times: about as many as `rowsMax`, and at least that many where there are. */
  async deleteSumsBefore(grainMs: number, beforeMs: number, rowsMax: number): Promise<number> {
    let removed = 0;
    const tables = [
      ...(grainMs === DAY_MS ? [{ table: "request_asker_days", where: "" }] : []),
      ...["request_asker_sums", "request_sums"].map((table) => ({
        table,
        where: `grain_ms = ${grainMs} AND`,
      })),
    ];
    for (const { table, where } of tables) {
      if (removed >= rowsMax) break;
      const last = await this.db.get<{ start_ms: number }>(
        `SELECT start_ms FROM ${table} WHERE ${where} start_ms < $1 ORDER BY start_ms LIMIT 1 OFFSET $2`,
        [beforeMs, rowsMax],
      );
      const below = last ? last.start_ms + 1 : beforeMs;
      removed += await this.db.run(`DELETE FROM ${table} WHERE ${where} start_ms < $1`, [below]);
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
