import { BoundedMap } from "../../../kernel/bounded.ts";
import { type Clock, within } from "../../../kernel/clock.ts";
import { Outage } from "../../../kernel/errors.ts";
import type { Log } from "../../../kernel/log.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import { type Database, insertAll } from "../../../storage/contract.ts";

/** One turn of the Responses API. `input`, `output` and `response` are JSON. */
export interface ResponseRow {
  id: string;
  user_id: string;
  key_id: string;
  previous_id: string | null;
  /** Set once something continued from it. */
  conversation_id: string | null;
  input: string;
  output: string;
  /** The response without its output; null when it was too large to be kept. */
  response: string | null;
  created_at: string;
}
/** What a continuing request needs of a response. */
export type ChainedRow = Pick<ResponseRow, "id" | "previous_id" | "input" | "output">;

const KEPT_PER_USER_MAX = 1_000;
/** A user's excess responses are removed once per this many inserts, because finding them means counting all. */
const REMOVED_EVERY = 100;

const COLUMNS = "id, user_id, key_id, previous_id, conversation_id, input, output, response, created_at";

export class ResponseStore {
  /** Inserts left until a user's excess responses are removed. */
  readonly #untilRemoval = new BoundedMap<string, number>();

  constructor(readonly db: Database) {}

  find(userId: string, id: string): Promise<ResponseRow | null> {
    return this.db.get<ResponseRow>(
      `SELECT ${COLUMNS} FROM stored_responses WHERE id = $1 AND user_id = $2`,
      [id, userId],
    );
  }

  /** The row and the chain of the user's rows that lead to it, newest first, within the limits. */
  async chain(last: ResponseRow, limits: { turnsMax: number; charsMax: number }): Promise<ChainedRow[]> {
    const { turnsMax, charsMax } = limits;
    if (last.previous_id === null) return [last];
    const earlier = await this.db.all<ChainedRow>(
      `WITH RECURSIVE chain (id, previous_id, depth, chars) AS (
         SELECT id, previous_id, 1, $5 + length(input) + length(output)
         FROM stored_responses WHERE id = $1 AND user_id = $2
         UNION ALL
         SELECT r.id, r.previous_id, chain.depth + 1, chain.chars + length(r.input) + length(r.output)
         FROM stored_responses r JOIN chain ON r.id = chain.previous_id
         WHERE r.user_id = $2 AND chain.depth < $3
           AND chain.chars + length(r.input) + length(r.output) <= $4
       )
       SELECT r.id, r.previous_id, r.input, r.output
       FROM chain JOIN stored_responses r ON r.id = chain.id ORDER BY chain.depth`,
      [last.previous_id, last.user_id, turnsMax - 1, charsMax, last.input.length + last.output.length],
    );
    return [last, ...earlier];
  }

  /** Existing rows stay unchanged. */
  async insert(rows: readonly ResponseRow[]): Promise<void> {
    await this.db.transaction(
      (tx) => insertAll(tx, "stored_responses", rows, "ON CONFLICT (id) DO NOTHING"),
      { isUnsynced: true },
    );
    for (const { user_id } of rows) {
      const left = (this.#untilRemoval.get(user_id) ?? 1) - 1;
      this.#untilRemoval.set(user_id, left <= 0 ? REMOVED_EVERY : left);
      if (left <= 0) await this.#removeExcess(user_id);
    }
  }

  /** Ids are in the order of time. */
  #removeExcess(userId: string): Promise<number> {
    return this.db.run(
      `DELETE FROM stored_responses WHERE user_id = $1 AND id <=
         (SELECT id FROM stored_responses WHERE user_id = $1 ORDER BY id DESC LIMIT 1 OFFSET ${KEPT_PER_USER_MAX})`,
      [userId],
    );
  }

  setConversation(id: string, conversationId: string): Promise<number> {
    return this.db.run("UPDATE stored_responses SET conversation_id = $2 WHERE id = $1", [
      id,
      conversationId,
    ]);
  }

  async remove(userId: string, id: string): Promise<boolean> {
    const removed = await this.db.run("DELETE FROM stored_responses WHERE id = $1 AND user_id = $2", [
      id,
      userId,
    ]);
    return removed > 0;
  }

  /** At most `rowsMax` of those that are older than the id. */
  removeBelow(id: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM stored_responses WHERE id IN
         (SELECT id FROM stored_responses WHERE id < $1 ORDER BY id LIMIT $2)`,
      [id, rowsMax],
    );
  }
}

/** A killed process loses what was queued since the last write. */
const WRITE_EVERY_MS = 100;
const RETRY_AFTER_MS = 2_000;
const QUEUE_CHARS_MAX = 16 * 1024 * 1024;
/** On SQLite a transaction makes all other writers wait. */
const TRANSACTION_ROWS_MAX = 64;

interface WriterOptions {
  store: Pick<ResponseStore, "insert">;
  clock: Clock;
  log: Log;
  /** Called before a continuing turn is inserted, and again with the same row if that fails. */
  joined(row: ResponseRow, previousId: string): Promise<void>;
}

const charsOf = ({ input, output, response }: ResponseRow): number =>
  input.length + output.length + (response?.length ?? 0);

/** Queues rows for the next write. Only a reader of a queued row waits for it. */
export class ResponseWriter {
  readonly #queue: ResponseRow[] = [];
  #queueChars = 0;
  #writing: Promise<boolean> | null = null;
  #isScheduled = false;
  #isClosed = false;

  constructor(readonly options: WriterOptions) {}

  keep(row: ResponseRow): boolean {
    const chars = charsOf(row);
    if (this.#queueChars + chars > QUEUE_CHARS_MAX) return false;
    this.#queue.push(row);
    this.#queueChars += chars;
    this.#schedule(WRITE_EVERY_MS);
    return true;
  }

  /** Waits until the response, if queued here, is written; false if the database does not accept it. */
  async written(userId: string, id: string): Promise<boolean> {
    while (this.#queue.some((row) => row.id === id && row.user_id === userId))
      if (!(await this.flush())) return false;
    return true;
  }

  /** Writes the queue; false if the database does not accept it. */
  flush(): Promise<boolean> {
    this.#writing ??= this.#writeAll().then((isWritten) => {
      this.#writing = null;
      if (this.#queue.length > 0) this.#schedule(isWritten ? WRITE_EVERY_MS : RETRY_AFTER_MS);
      return isWritten;
    });
    return this.#writing;
  }

  /** Writes the queue, if the database accepts it in time. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true;
    const flushAll = async () => {
      while ((await this.flush()) && this.#queue.length > 0);
    };
    await within(this.options.clock, timeoutMs, flushAll());
  }

  #schedule(delayMs: number): void {
    if (this.#isClosed || this.#isScheduled || this.#writing) return;
    this.#isScheduled = true;
    this.options.clock.after(delayMs, () => {
      this.#isScheduled = false;
      void this.flush();
    });
  }

  async #writeAll(): Promise<boolean> {
    for (let left = this.#queue.length; left > 0; ) {
      const rows = this.#queue.slice(0, Math.min(left, TRANSACTION_ROWS_MAX));
      try {
        await this.#write(rows);
      } catch (error) {
        this.options.log.warn("storing responses failed; will retry", { error });
        return false;
      }
      this.#queue.splice(0, rows.length);
      for (const row of rows) this.#queueChars -= charsOf(row);
      left -= rows.length;
      if (left > 0) await nextTurn();
    }
    return true;
  }

  /** A row that cannot be stored, e.g. because its user was deleted, does not block the others. */
  async #write(rows: readonly ResponseRow[]): Promise<void> {
    try {
      for (const row of rows) if (row.previous_id !== null) await this.options.joined(row, row.previous_id);
      await this.options.store.insert(rows);
    } catch (error) {
      if (error instanceof Outage) throw error;
      if (rows.length > 1) for (const row of rows) await this.#write([row]);
      else this.options.log.error("responses could not be stored", { request_id: rows[0]!.id, error });
    }
  }
}
