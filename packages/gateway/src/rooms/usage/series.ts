import { Conditions, type Database, type SqlValue, selectIn } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import { CACHE_COLUMNS, DAY_MS, NANO_PER_USD, summed, type Time, utcDay } from "./rows.ts";

export const SERIES_BY = ["model", "backend", "source", "ref", "project", "key", "user", "group"] as const;
export type SeriesBy = (typeof SERIES_BY)[number];

const GROUPS_MAX = 50;
/** Up to this many sums are read at once; beyond it, only those of the groups that are shown. */
const SUMS_MAX = 50_000;

/** Null: any. */
export interface SeriesFilter extends Time {
  userId: string | null;
  project: string | null;
  model: string | null;
  backend: string | null;
  apiKeyId: string | null;
  groupId: string | null;
  refId: string | null;
}

/** The view `usage_records` has no column for the group. */
const GROUP_OF_ROW = "(SELECT r.group_id FROM requests r WHERE r.id = usage_records.id)";

const COLUMNS: Readonly<Record<SeriesBy, string>> = {
  model: "model",
  backend: "served_by",
  source: "backend",
  ref: "ref_id",
  project: "project",
  key: "api_key_id",
  user: "CAST(user_id AS TEXT)",
  group: `CAST(${GROUP_OF_ROW} AS TEXT)`,
};
const ASKER_COLUMNS: Partial<Record<SeriesBy, string>> = {
  key: "api_key_id",
  project: "NULLIF(project, '')",
  user: `NULLIF(CAST(user_id AS TEXT), '${NO_ID}')`,
  group: `NULLIF(CAST(group_id AS TEXT), '${NO_ID}')`,
};
/** Names of the groups that are told apart by id. */
const NAMES: Partial<Record<SeriesBy, string>> = {
  user: "SELECT id, email AS name FROM users",
  group: "SELECT id, name FROM user_groups",
  key: `SELECT id, name FROM (SELECT key_prefix AS id, name || ' ' || key_prefix AS name FROM api_keys
    UNION ALL SELECT 'jwt-' || CAST(id AS TEXT), email || ', signed in' FROM users) AS keys`,
};

const COUNTED = [
  "requests",
  "prompt_tokens",
  "completion_tokens",
  "cost_nano_usd",
  ...CACHE_COLUMNS,
] as const;
const FIGURES = COUNTED.join(", ");

interface Sums extends Record<(typeof COUNTED)[number], number> {
  /** Null where the sums that were read do not say. */
  unpriced: number | null;
}

interface DaySums extends Sums {
  start_ms: number;
  name: string | null;
}

interface DaySource {
  sql: string;
  params: readonly SqlValue[];
}

export async function readSeries(db: Database, filter: SeriesFilter, by: SeriesBy) {
  const { groups, ...series } = seriesOf(await sumsOf(db, filter, by));
  const names = await namesOf(db, groups, by);
  return {
    ...series,
    groups: groups.map((group) => {
      const id = names && group.name;
      return { ...group, id, name: (id && names?.get(id)) ?? group.name };
    }),
  };
}

/** Null: the groups have no ids. */
async function namesOf(db: Database, groups: readonly { name: string | null }[], by: SeriesBy) {
  const select = NAMES[by];
  if (!select) return null;
  const rows = await selectIn<{ id: string; name: string }>(
    db,
    (list) => `${select} WHERE id IN ${list}`,
    groups.flatMap(({ name }) => name ?? []),
  );
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/**
 * `rows` has the sums of all groups, or only of those that are shown; `all` adds up to the totals.
 * `count` is the number of groups; null: as many as `rows` has.
 */
async function sumsOf(db: Database, filter: SeriesFilter, by: SeriesBy) {
  const source = sourceOf(filter, by);
  const { project, apiKeyId, groupId, refId, model, backend } = filter;
  const isOfAll = isWholeDays(filter) && !(project ?? apiKeyId ?? groupId ?? refId ?? model ?? backend);
  // There may be thousands of keys and users each day.
  if (!(isOfAll && (by === "key" || by === "user"))) {
    const rows = await grouped(db, source, "start_ms, name");
    if (rows.length < SUMS_MAX) return { rows, all: rows, count: null };
  }
  const dearest = await db.report<{ name: string | null; count: number }>(
    `SELECT name, COUNT(*) OVER () AS count FROM (${source.sql}) AS rows_of_days GROUP BY name HAVING SUM(requests) > 0
     ORDER BY SUM(cost_nano_usd) DESC, SUM(prompt_tokens) DESC LIMIT ${GROUPS_MAX}`,
    source.params,
  );
  const names = dearest.map(({ name }) => name ?? "");
  return {
    rows: await grouped(db, source, "start_ms, name", names),
    all: await grouped(db, isOfAll ? kinds(filter, "model") : source, "start_ms"),
    count: dearest[0]?.count ?? 0,
  };
}

function sourceOf(filter: SeriesFilter, by: SeriesBy): DaySource {
  const isByAsker = ASKER_COLUMNS[by] !== undefined;
  const isSummed = filter.userId === null || (isWholeDays(filter) && by !== "ref");
  const { apiKeyId, project, groupId, refId, model, backend } = filter;
  const isOfKinds = !(apiKeyId ?? project ?? groupId ?? refId ?? (by === "ref" ? backend : null));
  if (!isByAsker && isSummed && isOfKinds) return kinds(filter, by);
  return isByAsker && isWholeDays(filter) && !(model ?? backend ?? refId)
    ? askerDays(filter, by)
    : raw(filter, by);
}

function askerDays({ userId, project, apiKeyId, groupId, ...time }: SeriesFilter, by: SeriesBy): DaySource {
  const conditions = daysOf(time)
    .has("user_id", userId)
    .has("project", project)
    .has("api_key_id", apiKeyId)
    .has("group_id", groupId);
  const sql = `SELECT start_ms, ${ASKER_COLUMNS[by]} AS name, ${FIGURES}, unpriced
    FROM request_asker_days ${conditions.where} AND channel <> ''`;
  return { sql, params: conditions.params };
}

function kinds({ userId, fromMs, belowMs, model, backend }: SeriesFilter, by: SeriesBy): DaySource {
  const days = daysOf({ fromMs, belowMs: belowMs + DAY_MS - 1 });
  const { where, params } = days.has("model", model).has("backend", backend);
  const whose = `user_id = $${params.push(userId ?? NO_ID)}`;
  const ofAll = (name: string, unpriced: string) => `SELECT start_ms, ${name} AS name, ${FIGURES},
    ${unpriced} AS unpriced FROM request_sums ${where} AND grain_ms = ${DAY_MS} AND ${whose} AND channel <> ''`;
  if (by !== "ref") return { sql: ofAll(by === "source" ? "channel" : by, "unpriced"), params };
  // Requests without a reference: all of them minus those with one.
  const [noName, unknown] = ["CAST(NULL AS TEXT)", "CAST(NULL AS BIGINT)"];
  const minus = COUNTED.map((column) => `-${column}`);
  const ofRefs = (name: string, figures: string) =>
    `SELECT start_ms, ${name} AS name, ${figures}, ${unknown} AS unpriced FROM request_ref_days ${where}`;
  const parts = [ofRefs("ref_id", FIGURES), ofAll(noName, unknown), ofRefs(noName, minus.join(", "))];
  return { sql: parts.join(" UNION ALL "), params };
}

function raw(filter: SeriesFilter, by: SeriesBy): DaySource {
  const { where, params } = conditionsOf(filter);
  const sql = `SELECT created_ms - created_ms % ${DAY_MS} AS start_ms, ${COLUMNS[by]} AS name, 1 AS requests,
      prompt_tokens, completion_tokens, COALESCE(cost_nano_usd, 0) AS cost_nano_usd,
      ${CACHE_COLUMNS.join(", ")}, CASE WHEN unpriced THEN 1 ELSE 0 END AS unpriced
    FROM usage_records ${where}`;
  return { sql, params };
}

function grouped(
  db: Database,
  { sql, params }: DaySource,
  group: string,
  names: readonly string[] = [],
): Promise<DaySums[]> {
  const list = names.map((_, i) => `$${params.length + i + 1}`);
  return db.report<DaySums>(
    `SELECT ${group}, ${summed([...COUNTED, "unpriced"])} FROM (${sql}) AS rows_of_days
     ${list.length > 0 ? `WHERE COALESCE(name, '') IN (${list})` : ""} GROUP BY ${group} HAVING SUM(requests) > 0
     LIMIT ${SUMS_MAX}`,
    [...params, ...names],
  );
}

const isWholeDays = ({ fromMs, belowMs }: Time): boolean => fromMs % DAY_MS === 0 && belowMs % DAY_MS === 0;
const wholeDay = (ms: number): number => ms - (ms % DAY_MS);
const daysOf = ({ fromMs, belowMs }: Time): Conditions =>
  new Conditions().within("start_ms", { fromMs: wholeDay(fromMs), belowMs: wholeDay(belowMs) });

/** Conditions in the order of the index's columns. */
export function conditionsOf(filter: SeriesFilter): Conditions {
  const { userId, project, model, backend, apiKeyId, groupId, refId, ...time } = filter;
  return new Conditions()
    .has("user_id", userId)
    .within("created_ms", time)
    .has("project", project)
    .has("model", model)
    .has("served_by", backend)
    .has("ref_id", refId)
    .has("api_key_id", apiKeyId)
    .has(GROUP_OF_ROW, groupId);
}

const noSums = () =>
  Object.fromEntries([...COUNTED, "unpriced"].map((column) => [column, 0])) as unknown as Sums;

/** `times` is -1 to take the row away again. */
function add(sums: Sums, row: DaySums, times: number): void {
  for (const column of COUNTED) sums[column] += times * row[column];
  const isKnown = sums.unpriced !== null && row.unpriced !== null;
  sums.unpriced = isKnown ? sums.unpriced! + times * row.unpriced! : null;
}

const viewOf = ({ cost_nano_usd, cache_saved_nano_usd, ...sums }: Sums) => ({
  ...sums,
  cost_usd: cost_nano_usd / NANO_PER_USD,
  cache_saved_usd: cache_saved_nano_usd / NANO_PER_USD,
});

class SeriesGroup {
  readonly sums = noSums();
  readonly days = new Map<number, Sums>();

  add(row: DaySums, times = 1): void {
    add(this.sums, row, times);
    add(this.days.getOrInsertComputed(row.start_ms, noSums), row, times);
  }

  get view() {
    const days = [...this.days].filter(([, { requests }]) => requests > 0).sort(([a], [b]) => a - b);
    return {
      ...viewOf(this.sums),
      days: days.map(([startMs, sums]) => ({ day: utcDay(startMs), ...viewOf(sums) })),
    };
  }
}

function seriesOf({ rows, all, count }: Awaited<ReturnType<typeof sumsOf>>) {
  const groups = new Map<string | null, SeriesGroup>();
  for (const row of rows) groups.getOrInsertComputed(row.name, () => new SeriesGroup()).add(row);
  const shown = [...groups]
    .sort(
      ([, a], [, b]) =>
        b.sums.cost_nano_usd - a.sums.cost_nano_usd || b.sums.prompt_tokens - a.sums.prompt_tokens,
    )
    .slice(0, GROUPS_MAX);
  const more = (count ?? groups.size) - GROUPS_MAX;
  const kept = new Set(shown.map(([name]) => name));
  const rest = new SeriesGroup();
  for (const row of all) rest.add(row);
  const totals = viewOf(rest.sums);
  for (const row of rows) if (kept.has(row.name)) rest.add(row, -1);
  return {
    totals,
    groups: shown.map(([name, group]) => ({ name, ...group.view })),
    others: more > 0 ? { groups: more, ...rest.view } : null,
  };
}
