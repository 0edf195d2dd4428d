import { countRows, type Database, insertRow, updateRows } from "../../storage/contract.ts";

/** A job is left `submitting` if its process dies while sending: the upstream may have the task. Callers see queued. */
type JobStatus = "queued" | "submitting" | "running" | "done" | "failed" | "cancelled";

export interface JobRow {
  id: string;
  user_id: string;
  payer: string;
  model: string;
  /** Name of the backend that has or will get the task. */
  backend: string;
  /** JSON of the VideoRequest; the images are dropped once the upstream has them. */
  request: string;
  status: JobStatus;
  progress: number;
  task_id: string | null;
  result: string | null;
  error: string | null;
  cost: number;
  /** The job has ended, its cost is in the journal, and the upstream has been told to cancel if needed. */
  settled: boolean;
  stream_id: string;
  created_at: string;
  deadline_at: string;
  next_step_at: string;
  step_count: number;
  facts: string | null;
  /** The most that the job can cost, which is held for it. */
  bound_usd: number | null;
  /** JSON of warnings about fields that are not sent; null if there are none. */
  warnings: string | null;
}

/** A job without its request, which may contain megabytes of images. */
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

  /** Unsettled jobs, by the time of their next step. Runs every second, so it reads few columns. */
  unsettled(): Promise<Pick<JobRow, "id" | "status" | "next_step_at">[]> {
    return this.db.all(
      "SELECT id, status, next_step_at FROM video_jobs WHERE settled = FALSE ORDER BY next_step_at",
    );
  }

  /** Jobs that have not ended; with an `id`, only those whose payer mentions that key, user or group. */
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

  /** Changes a job that is in this status; false if it no longer is. */
  async #changeIn(status: JobStatus, id: string, changes: Partial<JobRow>): Promise<boolean> {
    return (await updateRows(this.db, "video_jobs", { id, status }, changes)) > 0;
  }

  /** Call it before sending the task. False if the job was cancelled meanwhile. */
  submitting(id: string): Promise<boolean> {
    return this.#changeIn("queued", id, { status: "submitting" });
  }

  /** The upstream refused the task, so it may be sent again. */
  async notSubmitted(id: string): Promise<void> {
    await this.#changeIn("submitting", id, { status: "queued" });
  }

  started(id: string, task: Pick<JobRow, "backend" | "task_id" | "request" | "facts">): Promise<boolean> {
    return this.#changeIn("submitting", id, { ...task, status: "running", step_count: 0 });
  }

  /** Notes the task of a job that was cancelled during submission, so that the upstream is told to cancel it. */
  async unwanted(id: string, { backend, task_id }: Pick<JobRow, "backend" | "task_id">): Promise<void> {
    await this.#changeIn("cancelled", id, { backend, task_id, settled: false });
  }

  async progressed(id: string, progress: number): Promise<void> {
    await this.#changeIn("running", id, { progress });
  }

  /** Ends the job, once. It stays unsettled until it is charged and, if it was broken off, the upstream has stopped. */
  async end(
    id: string,
    end: {
      status: "done" | "failed" | "cancelled";
      result: string | null;
      error: string | null;
      cost: number;
      /** The upstream may still be working on it. */
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
    await updateRows(this.db, "video_jobs", { id }, { settled: true, cost });
  }

  /** Empties the requests of settled jobs: prompts, and images that were never sent. */
  dropPayloads(before: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `UPDATE video_jobs SET request = '{}' WHERE id IN
         (SELECT id FROM video_jobs WHERE request <> '{}' AND created_at < $1 AND settled ORDER BY created_at LIMIT $2)`,
      [before, rowsMax],
    );
  }
}
