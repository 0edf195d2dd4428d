import type { Database, SqlValue } from "../../storage/contract.ts";
import { nextMonthMs, utcMonth } from "./calendar.ts";
import { WHOLE_USER } from "./rows.ts";

/** Someone with more of them waits while all their rows are sorted. */
const PROJECTS_MAX = 1_024;
/** Less than SQLite allows in one `UNION`. */
const UNION_SIZE = 128;

interface ListOptions {
  userId: string;
  project: string | null;
  limit: number;
  offset: number;
  /** The beginning of a month; rows before it are no longer kept, and about to be deleted. */
  fromMs: number;
}

interface ListedRow {
  id: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  created_at: string;
  ref_id: string | null;
  api_key_id: string;
  project: string | null;
  points: number | null;
  account_type: "user" | "group" | null;
  estimated: boolean;
}

/** Months that hold a page, and how many of their rows come before it. */
interface Months {
  /** `YYYY-MM` of the first. */
  from: string;
  fromMs: number;
  toMs: number;
  offset: number;
}

const startOf = (month: string): number => Date.parse(`${month}-01T00:00:00Z`);

/** Parameters: $1 the user, $2 and $3 the period, $4 and $5 limit and offset of the page, $6 their sum. */
const ROWS_OF_PERSON =
  "SELECT id, created_ms FROM usage_records WHERE user_id = $1 AND created_ms >= $2 AND created_ms < $3";

/** The newest rows of each of the projects: an index finds those of one at a time, in order. */
function rowsOfProjects(projects: readonly (string | null)[], bind: (value: string) => number): string {
  const part = (condition: string) =>
    `SELECT * FROM (${ROWS_OF_PERSON} AND ${condition} ORDER BY created_ms DESC, id LIMIT $6) AS part`;
  const union = (parts: readonly string[]) => parts.join(" UNION ALL ");
  const parts = projects.map((project) =>
    part(project === null ? "project IS NULL" : `project = $${bind(project)}`),
  );
  // Lists come in few lengths, so that few statement texts exist; no row has the empty project.
  while (parts.length & (parts.length - 1)) parts.push(part(`project = $${bind(WHOLE_USER)}`));
  if (parts.length <= UNION_SIZE) return union(parts);
  const unions: string[] = [];
  for (let at = 0; at < parts.length; at += UNION_SIZE)
    unions.push(`SELECT * FROM (${union(parts.slice(at, at + UNION_SIZE))}) AS several`);
  return union(unions);
}

/** A person's rows, page by page. */
export class UsageList {
  constructor(readonly db: Database) {}

  /** Newest first. */
  async page(options: ListOptions): Promise<ListedRow[]> {
    const { userId, project, limit } = options;
    const months = await this.#monthsOf(options);
    if (!months) return [];
    const projects = project === null ? await this.#projectsIn(userId, months) : [project];
    const { fromMs, toMs, offset } = months;
    const params: SqlValue[] = [userId, fromMs, toMs, limit, offset, limit + offset];
    const found =
      projects.length > PROJECTS_MAX
        ? ROWS_OF_PERSON
        : rowsOfProjects(projects, (value) => params.push(value));
    const rows = await this.db.all<ListedRow>(
      `SELECT id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_at, ref_id,
         api_key_id, project, points, account_type, estimated
       FROM usage_records WHERE id IN (SELECT id FROM (${found}) AS found
         ORDER BY created_ms DESC, id LIMIT $4 OFFSET $5)
       ORDER BY created_ms DESC, id`,
      params,
    );
    return rows.map((row) => ({ ...row, estimated: Boolean(row.estimated) }));
  }

  /** The months that the page is in: whole ones before it are skipped by their sums. Null when it has no rows. */
  async #monthsOf({ userId, project, limit, offset, fromMs }: ListOptions): Promise<Months | null> {
    const sums = await this.db.all<{ month: string; requests: number }>(
      `SELECT month, requests FROM usage_months WHERE user_id = $1 AND project = $2 AND month >= $3
       ORDER BY month DESC`,
      [userId, project ?? WHOLE_USER, utcMonth(fromMs)],
    );
    let skipped = 0;
    const first = sums.findIndex(({ requests }) => {
      if (skipped + requests > offset) return true;
      skipped += requests;
      return false;
    });
    if (first === -1) return null;
    let counted = skipped;
    const last = sums.slice(first).find(({ requests }) => {
      counted += requests;
      return counted >= offset + limit;
    });
    return {
      from: last?.month ?? utcMonth(fromMs),
      fromMs: last ? Math.max(fromMs, startOf(last.month)) : fromMs,
      // A row may be counted after this was read: then the page shows it, as it would a moment later.
      toMs: first === 0 ? Number.MAX_SAFE_INTEGER : nextMonthMs(startOf(sums[first]!.month)),
      offset: offset - skipped,
    };
  }

  /** Of which projects the person has rows since then. Those of a signed-in person have none: null. */
  async #projectsIn(userId: string, { from }: Months): Promise<(string | null)[]> {
    const rows = await this.db.all<{ project: string }>(
      "SELECT DISTINCT project FROM usage_months WHERE user_id = $1 AND month >= $2 AND project <> $3",
      [userId, from, WHOLE_USER],
    );
    return [null, ...rows.map(({ project }) => project)];
  }

  /** How many rows there are in all, from the rollups: counting rows would cost more with each of them. */
  async count({
    userId,
    project,
    fromMs,
  }: Pick<ListOptions, "userId" | "project" | "fromMs">): Promise<number> {
    const row = await this.db.get<{ total: number | null }>(
      `SELECT CAST(SUM(requests) AS BIGINT) AS total FROM usage_months
       WHERE user_id = $1 AND project = $2 AND month >= $3`,
      [userId, project ?? WHOLE_USER, utcMonth(fromMs)],
    );
    return row?.total ?? 0;
  }
}
