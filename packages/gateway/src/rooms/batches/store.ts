import { isoTime } from "../../kernel/clock.ts";
import { nextTurn } from "../../kernel/turns.ts";
import {
  countRows,
  type Database,
  insertRow,
  insertRows,
  type Sweep,
  updateRows,
} from "../../storage/contract.ts";
import { UNFINISHED } from "./check.ts";

export type BatchStatus = "in_progress" | "cancelling" | "completed" | "failed" | "expired" | "cancelled";

/** `errors`, `metadata` and `payer` are JSON. */
export interface BatchRow {
  id: string;
  user_id: string;
  key_id: string;
  payer: string;
  endpoint: string;
  input_file_id: string;
  output_file_id: string | null;
  error_file_id: string | null;
  status: BatchStatus;
  errors: string | null;
  metadata: string | null;
  total: number;
  completed: number;
  failed: number;
  cost_nano_usd: number;
  bound_nano_usd: number;
  bound_tokens: number;
  created_at: string;
  due_at: string;
  cancelling_at: string | null;
  ended_at: string | null;
  expires_at: string;
}

export interface FileRow {
  id: string;
  user_id: string;
  key_id: string;
  batch_id: string | null;
  purpose: "batch" | "batch_output";
  filename: string;
  bytes: number;
  created_at: string;
  expires_at: string;
}

/** `custom_id` is JSON, so that it can be copied into an output line. */
export interface Line {
  line: number;
  custom_id: string;
  body: string;
  bound_nano_usd: number;
  bound_tokens: number;
}

export type UnsettledLine = Omit<Line, "body"> & { status: number | null; owed: string };

export interface AnsweredLine {
  status: number;
  output: string;
  /** JSON of what is charged; null if nothing is. */
  owed: string | null;
}

/** A key with limits of its own sees only what it made; a person sees all. */
export interface Owner {
  userId: string;
  keyId: string | null;
}

export interface ListPage {
  after?: string;
  limit: number;
  order: "asc" | "desc";
}

const PART_BYTES = 1024 * 1024;
/** Written or read at once, so that nobody waits long. */
const PAGE_BYTES = 256 * 1024;
const LINES_A_PAGE = 100;
/** Lines changed at once; each may have megabytes. */
const LINES_A_STEP = 8;
/** Uploads that were interrupted by the end of the process are deleted after this time. */
const UNFINISHED_MS = 3_600_000;

const owned = ({ userId, keyId }: Owner) => [userId, keyId];
const OWNED = "user_id = $1 AND (key_id = $2 OR $2 IS NULL)";

export class BatchStore {
  constructor(readonly db: Database) {}

  /** Written part by part, because the commit of one large transaction would block everyone. */
  async insertFile(row: FileRow, content: Buffer): Promise<void> {
    const expires_at = isoTime(Date.parse(row.created_at) + UNFINISHED_MS);
    await insertRow(this.db, "files", { ...row, expires_at });
    for (let part = 0; part * PART_BYTES < content.length; part++) {
      const bytes = content.subarray(part * PART_BYTES, (part + 1) * PART_BYTES);
      await insertRow(this.db, "file_parts", { file_id: row.id, part, content: bytes });
      await nextTurn();
    }
    await updateRows(this.db, "files", { id: row.id }, { expires_at: row.expires_at });
  }

  file(owner: Owner, id: string): Promise<FileRow | null> {
    return this.db.get<FileRow>(`SELECT * FROM files WHERE ${OWNED} AND id = $3`, [...owned(owner), id]);
  }

  async keptBytes(userId: string): Promise<number> {
    const sql = "SELECT COALESCE(SUM(bytes), 0) AS n FROM files WHERE user_id = $1";
    return Number((await this.db.get<{ n: number }>(sql, [userId]))!.n);
  }

  /** The size that the output of the lines will have in a file. */
  async outputBytes(batchId: string, which = "TRUE", db: Pick<Database, "get"> = this.db): Promise<number> {
    const sql = `SELECT COALESCE(SUM(OCTET_LENGTH(output) + 1), 0) AS n FROM batch_lines WHERE batch_id = $1 AND ${which}`;
    return Number((await db.get<{ n: number }>(sql, [batchId]))!.n);
  }

  list<Row extends FileRow | BatchRow>(
    table: "files" | "batches",
    owner: Owner,
    page: ListPage,
  ): Promise<Row[]> {
    const { after, limit, order } = page;
    const past = `AND (created_at, id) ${order === "asc" ? ">" : "<"} (SELECT created_at, id FROM ${table} WHERE id = $4)`;
    return this.db.all<Row>(
      `SELECT * FROM ${table} WHERE ${OWNED} ${after === undefined ? "" : past}
       ORDER BY created_at ${order}, id ${order} LIMIT $3`,
      [...owned(owner), limit, ...(after === undefined ? [] : [after])],
    );
  }

  /** Also deletes the output of the batch that the file belongs to. */
  async removeFile({ id, batch_id, filename }: FileRow): Promise<void> {
    const part = "DELETE FROM file_parts WHERE file_id = $1 AND part = $2";
    for (let at = 0; (await this.db.run(part, [id, at])) > 0; at++) await nextTurn();
    await this.db.run("DELETE FROM files WHERE id = $1", [id]);
    if (batch_id === null) return;
    await this.#inSteps(batch_id, `UPDATE batch_lines SET output = NULL WHERE ${linesOf(filename)}`);
  }

  /** Runs `sql`, which must end with a condition, for a few lines at a time. */
  async #inSteps(batchId: string, sql: string, ...more: string[]): Promise<void> {
    const lines = "SELECT COALESCE(MAX(line), 0) AS last FROM batch_lines WHERE batch_id = $1";
    const { last } = (await this.db.get<{ last: number }>(lines, [batchId]))!;
    for (let after = 0; after < last; after += LINES_A_STEP) {
      const step = `${sql} AND batch_id = $1 AND line > $2 AND line <= $3`;
      await this.db.run(step, [batchId, after, after + LINES_A_STEP, ...more]);
      await nextTurn();
    }
  }

  async *content({ id, batch_id, filename }: FileRow): AsyncGenerator<Uint8Array> {
    for (let part = 0; batch_id === null; part++) {
      const sql = "SELECT content FROM file_parts WHERE file_id = $1 AND part = $2";
      const row = await this.db.get<{ content: Uint8Array }>(sql, [id, part]);
      if (!row) return;
      yield row.content;
      await nextTurn();
    }
    for (let after = 0, limit = 1; ; ) {
      const rows = await this.db.all<{ line: number; output: string }>(
        `SELECT line, output FROM batch_lines
         WHERE batch_id = $1 AND ${linesOf(filename)} AND line > $2 AND output IS NOT NULL ORDER BY line LIMIT $3`,
        [batch_id, after, limit],
      );
      if (rows.length === 0) return;
      const piece = Buffer.from(rows.map(({ output }) => `${output}\n`).join(""));
      yield piece;
      await nextTurn();
      after = rows.at(-1)!.line;
      // More at once if the lines so far were small.
      limit = Math.min(LINES_A_PAGE, 2 * limit, Math.ceil((PAGE_BYTES * rows.length) / piece.length));
    }
  }

  /** Until all lines are stored, the batch counts as failed. */
  async insert(batch: BatchRow, lines: readonly Line[]): Promise<void> {
    const { id, status, ended_at, errors, created_at } = batch;
    await insertRow(this.db, "batches", { ...batch, ...NOT_YET, ended_at: created_at });
    const into = "batch_lines (batch_id, line, custom_id, body, bound_nano_usd, bound_tokens)";
    for (let at = 0; at < lines.length; await nextTurn()) {
      const page: Line[] = [];
      for (let bytes = 0; at < lines.length && page.length < LINES_A_PAGE && bytes < PAGE_BYTES; at++) {
        page.push(lines[at]!);
        bytes += lines[at]!.body.length;
      }
      const rows = page.map((line) => [id, ...Object.values(line)]);
      await insertRows(this.db, into, rows);
    }
    await updateRows(this.db, "batches", { id }, { status, ended_at, errors });
  }

  find(owner: Owner, id: string): Promise<BatchRow | null> {
    return this.db.get<BatchRow>(`SELECT * FROM batches WHERE ${OWNED} AND id = $3`, [...owned(owner), id]);
  }

  countActive(userId: string): Promise<number> {
    return countRows(this.db, "batches WHERE user_id = $1 AND ended_at IS NULL", [userId]);
  }

  active(): Promise<BatchRow[]> {
    return this.db.all<BatchRow>("SELECT * FROM batches WHERE ended_at IS NULL ORDER BY created_at");
  }

  async cancel(id: string, now: string): Promise<void> {
    const change = { status: "cancelling", cancelling_at: now };
    await updateRows(this.db, "batches", { id, status: "in_progress" }, change);
  }

  /** Lines after `after` that are neither answered, nor running here, nor sent to a vendor by any instance. */
  pending(
    batchId: string,
    { running, after, limit }: { running: readonly number[]; after: number; limit: number },
  ): Promise<Line[]> {
    const others = running.length === 0 ? "" : `AND line NOT IN (${running.join(", ")})`;
    return this.db.all<Line>(
      `SELECT line, custom_id, body, bound_nano_usd, bound_tokens FROM batch_lines
       WHERE batch_id = $1 AND status IS NULL AND owed IS NULL AND line > $2 ${others} AND ${IS_RUN}
       ORDER BY line LIMIT $3`,
      [batchId, after, limit],
    );
  }

  /** Marks an unanswered line with what it costs if no answer comes. False if another instance was faster. */
  async mark(batchId: string, line: number, from: string | null, to: string | null): Promise<boolean> {
    const sql = `UPDATE batch_lines SET owed = $4
      WHERE batch_id = $1 AND line = $2 AND status IS NULL AND owed IS NOT DISTINCT FROM $3
        ${to === null ? "" : `AND ${IS_RUN}`}`;
    return (await this.db.run(sql, [batchId, line, from, to])) > 0;
  }

  /** Lines that were sent or answered and may not be charged yet. */
  unsettled(batchId: string): Promise<UnsettledLine[]> {
    return this.db.all(
      `SELECT line, custom_id, bound_nano_usd, bound_tokens, status, owed FROM batch_lines
       WHERE batch_id = $1 AND owed IS NOT NULL`,
      [batchId],
    );
  }

  /** Stores the first answer of a line; false if it has one already. */
  answered(
    batchId: string,
    { line, ...bound }: Omit<Line, "body">,
    { status, output, owed }: AnsweredLine,
  ): Promise<boolean> {
    const count = status === 200 ? "completed" : "failed";
    return this.db.transaction(async (tx) => {
      const changed = await tx.run(
        "UPDATE batch_lines SET status = $3, output = $4, owed = $5, body = '' WHERE batch_id = $1 AND line = $2 AND status IS NULL",
        [batchId, line, status, output, owed],
      );
      if (changed === 0) return false;
      await tx.run(`UPDATE batches SET ${count} = ${count} + 1 WHERE id = $1`, [batchId]);
      if (owed === null) await tx.run(FREE_BOUND, [batchId, 0, bound.bound_nano_usd, bound.bound_tokens]);
      return true;
    });
  }

  async settled(batchId: string, line: Omit<Line, "body" | "custom_id">, costNanoUsd: number): Promise<void> {
    await this.db.transaction(async (tx) => {
      const changed = await tx.run(
        "UPDATE batch_lines SET owed = NULL WHERE batch_id = $1 AND line = $2 AND owed IS NOT NULL",
        [batchId, line.line],
      );
      if (changed > 0)
        await tx.run(FREE_BOUND, [batchId, costNanoUsd, line.bound_nano_usd, line.bound_tokens]);
    });
  }

  /** Completes the output of unanswered lines: `unanswered` follows their id. */
  failPending(batchId: string, unanswered: string): Promise<void> {
    const output = `'{"id":null,"custom_id":' || custom_id || $4`;
    const sql = `UPDATE batch_lines SET status = 0, body = '', output = ${output} WHERE status IS NULL`;
    return this.#inSteps(batchId, sql, unanswered);
  }

  /** Ends the batch, once. */
  async end(
    batch: BatchRow,
    { status, now, fileIds }: { status: BatchStatus; now: string; fileIds: string[] },
  ): Promise<void> {
    const { id, user_id, key_id, expires_at } = batch;
    await this.db.transaction(async (tx) => {
      const ended = await tx.run(
        `UPDATE batches SET status = $2, ended_at = $3, failed = total - completed
         WHERE id = $1 AND ended_at IS NULL`,
        [id, status, now],
      );
      if (ended === 0) return;
      for (const [at, filename] of [OUTPUT, ERRORS].entries()) {
        const bytes = await this.outputBytes(id, linesOf(filename), tx);
        if (bytes === 0) continue;
        const file: FileRow = {
          ...{ id: fileIds[at]!, user_id, key_id, batch_id: id, purpose: "batch_output" },
          ...{ filename, bytes, created_at: now, expires_at },
        };
        await insertRow(tx, "files", { ...file });
        const column = filename === OUTPUT ? "output_file_id" : "error_file_id";
        await updateRows(tx, "batches", { id }, { [column]: file.id });
      }
    });
  }

  readonly sweepFiles: Sweep = async (nowMs, rowsMax) => {
    const sql = "SELECT * FROM files WHERE expires_at < $1 ORDER BY expires_at LIMIT $2";
    const expired = await this.db.all<FileRow>(sql, [isoTime(nowMs), rowsMax]);
    for (const file of expired) await this.removeFile(file);
    return expired.length;
  };

  readonly sweepBatches: Sweep = async (nowMs, rowsMax) => {
    const sql = `SELECT id FROM batches WHERE expires_at < $1 AND ended_at IS NOT NULL ORDER BY expires_at LIMIT $2`;
    const expired = await this.db.all<Pick<BatchRow, "id">>(sql, [isoTime(nowMs), rowsMax]);
    for (const { id } of expired) {
      await this.#inSteps(id, "DELETE FROM batch_lines WHERE true");
      await this.db.run("DELETE FROM batches WHERE id = $1", [id]);
    }
    return expired.length;
  };
}

/** The batch may have been cancelled since the runner read it; then nothing more is sent. */
const IS_RUN = "EXISTS (SELECT 1 FROM batches WHERE id = $1 AND batches.status = 'in_progress')";
const NOT_YET = { status: "failed", errors: JSON.stringify([UNFINISHED]) };
const OUTPUT = "output.jsonl";
const ERRORS = "errors.jsonl";
const linesOf = (filename: string): string => (filename === OUTPUT ? "status = 200" : "status <> 200");

const FREE_BOUND = `UPDATE batches SET cost_nano_usd = cost_nano_usd + $2, bound_nano_usd = bound_nano_usd - $3,
  bound_tokens = bound_tokens - $4 WHERE id = $1`;
