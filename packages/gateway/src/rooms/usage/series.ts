import { Conditions, type Database, type SqlValue, selectIn } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import { CACHE_COLUMNS, DAY_MS, NANO_PER_USD, summed, type Time, utcDay } from "./rows.ts";

export const SERIES_BY = ["model", "backend", "source", "ref", "project", "key", "user", "group"] as const;
export type SeriesBy = (typeof SERIES_BY)[number];

const GROUPS_MAX = 50;
/** Sums by day and group that are read; the smallest are left out beyond that. */
const SUMS_MAX = 50_000;

/** Which rows; null members do not matter. */
export interface SeriesFilter extends Time {
  userId: string | null;
  project: string | null;
  model: string | null;
  backend: string | null;
  apiKeyId: string | null;
  groupId: string | null;
  refId: string | null;
}

/** The view of usage has no group. */
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
/** Where the names of those stand that are grouped by their ids. */
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
  unpriced: number | null;
}

interface DaySums extends Sums {
  start_ms: number;
  name: string | null;
}

/** Sums by day and group, as a chart shows them. */
export class UsageSeries {
  constructor(readonly db: Database) {}

  async read(filter: SeriesFilter, by: SeriesBy) {
    const { groups, ...series } = seriesOf(await this.#rows(filter, by));
    const names = await this.#namesOf(groups, by);
    return {
      ...series,
      groups: groups.map((group) => {
        const id = names && group.name;
        return { ...group, id, name: (id && names?.get(id)) ?? group.name };
      }),
    };
  }

  /** Null where groups are not told apart by ids. */
  async #namesOf(groups: readonly { name: string | null }[], by: SeriesBy) {
    const select = NAMES[by];
    if (!select) return null;
    const rows = await selectIn<{ id: string; name: string }>(
      this.db,
      (list) => `${select} WHERE id IN ${list}`,
      groups.flatMap(({ name }) => name ?? []),
    );
    return new Map(rows.map(({ id, name }) => [id, name]));
  }

  #rows(filter: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const isByAsker = ASKER_COLUMNS[by] !== undefined;
    const isWholeDays = filter.fromMs % DAY_MS === 0 && filter.belowMs % DAY_MS === 0;
    const isSummed = filter.userId === null || (isWholeDays && by !== "ref");
    const { apiKeyId, project, groupId, refId, model, backend } = filter;
    const isOfKinds = !(apiKeyId ?? project ?? groupId ?? refId ?? (by === "ref" ? backend : null));
    if (!isByAsker && isSummed && isOfKinds) return this.#kinds(filter, by);
    return isByAsker && isWholeDays && !(model ?? backend ?? refId)
      ? this.#askerDays(filter, by)
      : this.#raw(filter, by);
  }

  #askerDays(
    { userId, project, apiKeyId, groupId, ...time }: SeriesFilter,
    by: SeriesBy,
  ): Promise<DaySums[]> {
    const conditions = daysOf(time)
      .has("user_id", userId)
      .has("project", project)
      .has("api_key_id", apiKeyId)
      .has("group_id", groupId);
    const source = `SELECT start_ms, ${ASKER_COLUMNS[by]} AS name, ${FIGURES}, unpriced
      FROM request_asker_days ${conditions.where} AND channel <> ''`;
    return this.#grouped(source, conditions.params);
  }

  /** Everyone's, or a person's, from the sums of whole days. */
  #kinds({ userId, fromMs, belowMs, model, backend }: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const days = daysOf({ fromMs, belowMs: belowMs + DAY_MS - 1 });
    const { where, params } = days.has("model", model).has("backend", backend);
    const whose = `user_id = $${params.push(userId ?? NO_ID)}`;
    const ofAll = (name: string, unpriced: string) => `SELECT start_ms, ${name} AS name, ${FIGURES},
      ${unpriced} AS unpriced FROM request_sums ${where} AND grain_ms = ${DAY_MS} AND ${whose} AND channel <> ''`;
    if (by !== "ref") return this.#grouped(ofAll(by === "source" ? "channel" : by, "unpriced"), params);
    // Without a reference is what all have and those with one do not.
    const [noName, unknown] = ["CAST(NULL AS TEXT)", "CAST(NULL AS BIGINT)"];
    const minus = COUNTED.map((column) => `-${column}`);
    const ofRefs = (name: string, figures: string) =>
      `SELECT start_ms, ${name} AS name, ${figures}, ${unknown} AS unpriced FROM request_ref_days ${where}`;
    const parts = [ofRefs("ref_id", FIGURES), ofAll(noName, unknown), ofRefs(noName, minus.join(", "))];
    return this.#grouped(parts.join(" UNION ALL "), params);
  }

  #raw(filter: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const { where, params } = conditionsOf(filter);
    const source = `SELECT created_ms - created_ms % ${DAY_MS} AS start_ms, ${COLUMNS[by]} AS name, 1 AS requests,
        prompt_tokens, completion_tokens, COALESCE(cost_nano_usd, 0) AS cost_nano_usd,
        ${CACHE_COLUMNS.join(", ")}, CASE WHEN unpriced THEN 1 ELSE 0 END AS unpriced
      FROM usage_records ${where}`;
    return this.#grouped(source, params);
  }

  #grouped(source: string, params: readonly SqlValue[]): Promise<DaySums[]> {
    return this.db.all<DaySums>(
      `SELECT start_ms, name, ${summed([...COUNTED, "unpriced"])} FROM (${source}) AS rows_of_days GROUP BY start_ms, name
       HAVING SUM(requests) > 0
       ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${SUMS_MAX}`,
      params,
    );
  }
}

const wholeDay = (ms: number): number => ms - (ms % DAY_MS);
const daysOf = ({ fromMs, belowMs }: Time): Conditions =>
  new Conditions().within("start_ms", { fromMs: wholeDay(fromMs), belowMs: wholeDay(belowMs) });

/** Conditions on usage rows, in the order of the index that finds them. */
export function conditionsOf(filter: SeriesFilter): Conditions {
  const { userId, project, model, backend, apiKeyId, groupId, refId, ...time } = filter;
  const conditions = new Conditions().has("user_id", userId).within("created_ms", time);
  return conditions
    .has("project", project)
    .has("model", model)
    .has("served_by", backend)
    .has("ref_id", refId)
    .has("api_key_id", apiKeyId)
    .has(GROUP_OF_ROW, groupId);
}

const noSums = (): Sums => ({
  requests: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cost_nano_usd: 0,
  cached_tokens: 0,
  cache_write_tokens: 0,
  cache_saved_nano_usd: 0,
  unpriced: 0,
});

function add(sums: Sums, row: DaySums): void {
  for (const column of COUNTED) sums[column] += row[column];
  sums.unpriced = sums.unpriced === null || row.unpriced === null ? null : sums.unpriced + row.unpriced;
}

const viewOf = ({ cost_nano_usd, cache_saved_nano_usd, ...sums }: Sums) => ({
  ...sums,
  cost_usd: cost_nano_usd / NANO_PER_USD,
  cache_saved_usd: cache_saved_nano_usd / NANO_PER_USD,
});

class SeriesGroup {
  readonly sums = noSums();
  readonly days = new Map<number, Sums>();

  add(row: DaySums): void {
    add(this.sums, row);
    const day = this.days.get(row.start_ms) ?? noSums();
    add(day, row);
    this.days.set(row.start_ms, day);
  }

  get view() {
    const days = [...this.days].sort(([a], [b]) => a - b);
    return {
      ...viewOf(this.sums),
      days: days.map(([startMs, sums]) => ({ day: utcDay(startMs), ...viewOf(sums) })),
    };
  }
}

function seriesOf(rows: readonly DaySums[]) {
  const groups = new Map<string | null, SeriesGroup>();
  const totals = noSums();
  for (const row of rows) {
    add(totals, row);
    const group = groups.get(row.name) ?? new SeriesGroup();
    group.add(row);
    groups.set(row.name, group);
  }
  const sorted = [...groups].sort(
    ([, a], [, b]) =>
      b.sums.cost_nano_usd - a.sums.cost_nano_usd || b.sums.prompt_tokens - a.sums.prompt_tokens,
  );
  const shown = sorted.slice(0, GROUPS_MAX);
  const kept = new Set(shown.map(([name]) => name));
  const rest = new SeriesGroup();
  for (const row of rows) if (!kept.has(row.name)) rest.add(row);
  return {
    totals: viewOf(totals),
    groups: shown.map(([name, group]) => ({ name, ...group.view })),
    others: sorted.length > GROUPS_MAX ? { groups: sorted.length - GROUPS_MAX, ...rest.view } : null,
  };
}
