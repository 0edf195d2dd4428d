import { countRows, type Database, insertRow } from "../../storage/contract.ts";

/** `submitting` stays when the process dies: only then is it unknown whether the upstream has the task. Callers see queued. */
type JobStatus = "queued" | "submitting" | "running" | "done" | "failed" | "cancelled";

export interface JobRow {
  id: string;
  user_id: string;
  payer: string;
  model: string;
  /** Name of the backend that has, or will get, the task. */
  backend: string;
  /** JSON of the VideoRequest; its images are dropped once the upstream has them. */
  request: string;
  status: JobStatus;
  progress: number;
  task_id: string | null;
  result: string | null;
  error: string | null;
  cost: number;
  /** Nothing is left to do: the job ended, what it cost is in the journal, and the upstream was told to cancel. */
  settled: boolean;
  stream_id: string;
  created_at: string;
  deadline_at: string;
  next_step_at: string;
  step_count: number;
  facts: string | null;
  /** What the job may cost at most, which is held for it. */
  bound_usd: number | null;
  /** JSON of what was asked for and is not sent; null: nothing. */
  warnings: string | null;
}

/** A job without what was asked for, which may hold megabytes of images. */
export type JobSummary = Omit<JobRow, "request">;

const ACTIVE = "('queued', 'submitting', 'running')";

const COLUMNS =
  "id, user_id, payer, model, backend, request, status, progress, task_id, result, error, cost, settled, stream_id, created_at, deadline_at, next_step_at, step_count, facts, bound_usd, warnings";

const SUMMARY_COLUMNS = COLUMNS.replace("request, ", "");

export class VideoStore {
  constructor(readonly db: Database) {}

  async insert(job: JobRow): Promise<void> {
    await insertRow(this.db, "video_jobs", job);
  }

  find(id: string): Promise<JobRow | null> {
    return this.db.get<JobRow>(`SELECT ${COLUMNS} FROM video_jobs WHERE id = $1`, [id]);
  }

  listOf(userId: string, limit: number): Promise<JobSummary[]> {
    return this.db.all<JobSummary>(
      `SELECT ${SUMMARY_COLUMNS} FROM video_jobs WHERE user_id = $1 ORDER BY created_at DESC, id LIMIT $2`,
      [userId, limit],
    );
  }

  countActive(userId: string): Promise<number> {
    return countRows(this.db, `video_jobs WHERE user_id = $1 AND status IN ${ACTIVE}`, [userId]);
  }

  /** Jobs that are not at their end, those whose next step is due first; only what is looked at every second. */
  unsettled(): Promise<Pick<JobRow, "id" | "status" | "next_step_at">[]> {
    return this.db.all(
      "SELECT id, status, next_step_at FROM video_jobs WHERE settled = FALSE ORDER BY next_step_at",
    );
  }

  /** Jobs that have not ended; with `id`, those whose payer is, or has to do with, that key, user or group. */
  active(id: string | null): Promise<JobSummary[]> {
    return this.db.all<JobSummary>(
      `SELECT ${SUMMARY_COLUMNS} FROM video_jobs WHERE settled = FALSE AND status IN ${ACTIVE} AND payer LIKE $1`,
      [id === null ? "%" : `%"${id}"%`],
    );
  }

  async rest(id: string, nextStepAt: string): Promise<void> {
    const sql = "UPDATE video_jobs SET next_step_at = $2, step_count = step_count + 1 WHERE id = $1";
    await this.db.run(sql, [id, nextStepAt]);
  }

  /** Before the task is sent. False when the job was cancelled meanwhile. */
  async submitting(id: string): Promise<boolean> {
    const sql = "UPDATE video_jobs SET status = 'submitting' WHERE id = $1 AND status = 'queued'";
    return (await this.db.run(sql, [id])) > 0;
  }

  /** The upstream did not take the task, so it may be sent again. */
  async notSubmitted(id: string): Promise<void> {
    const sql = "UPDATE video_jobs SET status = 'queued' WHERE id = $1 AND status = 'submitting'";
    await this.db.run(sql, [id]);
  }

  async started(
    id: string,
    { backend, taskId, request, facts }: { backend: string; taskId: string; request: string; facts: string },
  ): Promise<boolean> {
    const changed = await this.db.run(
      `UPDATE video_jobs SET status = 'running', backend = $2, task_id = $3, request = $4, facts = $5, step_count = 0
       WHERE id = $1 AND status = 'submitting'`,
      [id, backend, taskId, request, facts],
    );
    return changed > 0;
  }

  /** Keeps the task of a job that was cancelled while it was being submitted, so that the upstream is told. */
  async unwanted(id: string, { backend, taskId }: { backend: string; taskId: string }): Promise<void> {
    await this.db.run(
      "UPDATE video_jobs SET backend = $2, task_id = $3, settled = FALSE WHERE id = $1 AND status = 'cancelled'",
      [id, backend, taskId],
    );
  }

  async progressed(id: string, progress: number): Promise<void> {
    const sql = "UPDATE video_jobs SET progress = $2 WHERE id = $1 AND status = 'running'";
    await this.db.run(sql, [id, progress]);
  }

  /** Ends the job, once. It stays unsettled until it is charged, and where it was broken off until the upstream has stopped. */
  async end(
    id: string,
    end: {
      status: "done" | "failed" | "cancelled";
      result: string | null;
      error: string | null;
      cost: number;
      /** The upstream has not ended it. */
      isBrokenOff?: boolean;
    },
  ): Promise<boolean> {
    const changed = await this.db.run(
      `UPDATE video_jobs SET status = $2, result = $3, error = $4, cost = $5,
         settled = ($2 <> 'done' AND (task_id IS NULL OR NOT $6)),
         progress = CASE WHEN $2 = 'done' THEN 100 ELSE progress END
       WHERE id = $1 AND status IN ${ACTIVE}`,
      [id, end.status, end.result, end.error, end.cost, end.isBrokenOff ?? false],
    );
    return changed > 0;
  }

  async settled(id: string, cost: number): Promise<void> {
    await this.db.run("UPDATE video_jobs SET settled = TRUE, cost = $2 WHERE id = $1", [id, cost]);
  }

  /** Empties requests of jobs that ended: images that were never sent, and prompts. */
  dropPayloads(before: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `UPDATE video_jobs SET request = '{}' WHERE id IN
         (SELECT id FROM video_jobs WHERE request <> '{}' AND created_at < $1 AND settled ORDER BY created_at LIMIT $2)`,
      [before, rowsMax],
    );
  }
}
