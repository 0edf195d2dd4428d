import { BoundedMap } from "../../../kernel/bounded.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import {
  Attempts,
  type Database,
  insertRows,
  type Queryable,
  type Transaction,
} from "../../../storage/contract.ts";
import { requestIdOf, responseIdOf } from "./ids.ts";
import type { ResponseRow } from "./rows.ts";

/** How much of what led to a response is read. */
interface ChainLimits {
  turnsMax: number;
  charsMax: number;
}

/** The newest ones of each user that are kept. */
const KEPT_PER_USER_MAX = 1_000;
/** A user's older ones are removed after this many more: to find them, all that are kept must be counted. */
const REMOVED_EVERY = 100;
/** Rows of one transaction: with SQLite all else waits for it. */
const REMOVED_AT_ONCE_MAX = 100;
const USERS_COUNTED_MAX = 10_000;
/** Of one insert: after a start, it is the first one here of everybody. */
const COUNTED_AT_ONCE_MAX = 4;

const NAMES = [
  "id",
  "last_id",
  "user_id",
  "previous_id",
  "conversation_id",
  "turns",
  "content",
  "repeated",
  "created_at",
] as const satisfies (keyof ResponseRow)[];
const COLUMNS = NAMES.join(", ");

const insertAll = (on: Queryable, rows: readonly ResponseRow[]) =>
  insertRows(
    on,
    `stored_responses (${COLUMNS})`,
    rows.map((row) => NAMES.map((name) => row[name])),
    "ON CONFLICT (id) DO NOTHING",
  );

const turnsIn = ({ content }: ResponseRow) => JSON.parse(content) as { response: { id: string } }[];
const idsIn = (row: ResponseRow): string[] => turnsIn(row).map(({ response }) => response.id);

/** SQL of the stored responses. */
export class ResponseStore {
  /** How many more responses of a user are stored before the older ones are removed. */
  readonly #untilCount = new BoundedMap<string, number>(USERS_COUNTED_MAX);
  readonly #attempts: Attempts<ResponseRow>;

  constructor(readonly db: Database) {
    this.#attempts = new Attempts(db);
  }

  /** The row that a user's response is in. */
  async find(userId: string, id: string, on: Queryable = this.db): Promise<ResponseRow | null> {
    const responseId = responseIdOf(id);
    // Ids of one row may lie between those of another: what was asked first may be answered last.
    const rows = await on.all<ResponseRow>(
      `SELECT ${COLUMNS} FROM stored_responses
       WHERE user_id = $1 AND id <= $2 AND last_id >= $2 AND (id = last_id OR content LIKE $3)`,
      [userId, id, `%"response":{"id":"${responseId}"%`],
    );
    // The same may stand in what a client sent.
    return rows.find((row) => row.turns <= 1 || idsIn(row).includes(responseId)) ?? null;
  }

  /** The row and those that lead to it, the newest first, as far as its user has them and the limits allow. */
  async chain(last: ResponseRow, { turnsMax, charsMax }: ChainLimits): Promise<ResponseRow[]> {
    if (last.previous_id === null) return [last];
    const earlier = await this.db.all<ResponseRow>(
      `WITH RECURSIVE chain (id, previous_id, depth, chars) AS (
         SELECT id, previous_id, 1, $5 + length(content) FROM stored_responses WHERE id = $1 AND user_id = $2
         UNION ALL
         SELECT r.id, r.previous_id, chain.depth + 1, chain.chars + length(r.content) FROM stored_responses r
         JOIN chain ON r.id = chain.previous_id
         WHERE r.user_id = $2 AND chain.depth < $3 AND chain.chars + length(r.content) <= $4
       )
       SELECT ${NAMES.map((name) => `r.${name}`).join(", ")}
       FROM chain JOIN stored_responses r ON r.id = chain.id ORDER BY chain.depth`,
      [last.previous_id, last.user_id, turnsMax - 1, charsMax, last.content.length],
    );
    return [last, ...earlier];
  }

  /** Those that are there already stay as they are. One that was deleted since an earlier attempt does not come back. */
  async insert(rows: readonly ResponseRow[]): Promise<void> {
    const missing = await this.#attempts.notCommitted(rows);
    for (const userId of this.#usersToCount(missing)) await removeExcess(this.db, userId);
    const insertMissing = async (tx: Transaction) => {
      await this.#attempts.note(tx, missing);
      await insertAll(tx, missing);
    };
    if (missing.length > 0) await this.db.transaction(insertMissing, { isUnsynced: true });
  }

  /** Users whose older responses are to be removed now: at their first one here, and then every so often. */
  #usersToCount(rows: readonly ResponseRow[]): Set<string> {
    const users = new Set<string>();
    for (const { user_id, turns } of rows) {
      const left = (this.#untilCount.get(user_id) ?? 1) - turns;
      const isCounted = left <= 0 && users.size < COUNTED_AT_ONCE_MAX;
      if (isCounted) users.add(user_id);
      this.#untilCount.set(user_id, isCounted ? REMOVED_EVERY : left);
    }
    return users;
  }

  /** Makes a response part of a conversation, in a row of its own. */
  setConversation(userId: string, id: string, conversationId: string): Promise<void> {
    return this.db.transaction(async (tx) => {
      const own = await this.#takeOut(tx, userId, id);
      if (own) await insertAll(tx, [{ ...own, conversation_id: conversationId }]);
    });
  }

  /** Whether there was one of this user's. */
  remove(userId: string, id: string): Promise<boolean> {
    return this.db.transaction(async (tx) => (await this.#takeOut(tx, userId, id)) !== null);
  }

  /** Removes a response from its row, and the row where that was all; returns it as a row of its own. */
  async #takeOut(tx: Transaction, userId: string, id: string): Promise<ResponseRow | null> {
    // Two at a time would each put back what the other has taken.
    await tx.lock(`stored responses of ${userId}`);
    const row = await this.find(userId, id, tx);
    if (!row) return null;
    await tx.run("DELETE FROM stored_responses WHERE id = $1", [row.id]);
    if (row.turns <= 1) return row;
    const responseId = responseIdOf(id);
    const turns = turnsIn(row);
    const rest = turns.filter(({ response }) => response.id !== responseId);
    const ids = rest.map(({ response }) => requestIdOf(response.id)!).sort();
    const content = JSON.stringify(rest);
    await insertAll(tx, [{ ...row, id: ids[0]!, last_id: ids.at(-1)!, turns: rest.length, content }]);
    const own = turns.filter(({ response }) => response.id === responseId);
    return { ...row, id, last_id: id, turns: 1, content: JSON.stringify(own) };
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

/**
 * Ids are in the order of time. A row is as old as its newest response: one that took long is stored with those that
 * were asked for much later. Added up here: in SQL that takes SQLite several times as long.
 */
async function removeExcess(db: Database, userId: string): Promise<void> {
  const rows = await db.all<Pick<ResponseRow, "last_id" | "turns">>(
    "SELECT last_id, turns FROM stored_responses WHERE user_id = $1 ORDER BY last_id DESC",
    [userId],
  );
  let kept = 0;
  const oldest = rows.find(({ turns }) => {
    kept += Math.max(turns, 1);
    return kept >= KEPT_PER_USER_MAX;
  });
  if (!oldest || oldest === rows.at(-1)) return;
  const remove = (tx: Queryable) =>
    tx.run(
      `DELETE FROM stored_responses WHERE id IN
         (SELECT id FROM stored_responses WHERE user_id = $1 AND last_id < $2 ORDER BY id LIMIT $3)`,
      [userId, oldest.last_id, REMOVED_AT_ONCE_MAX],
    );
  do await nextTurn();
  while ((await db.transaction(remove, { isUnsynced: true })) === REMOVED_AT_ONCE_MAX);
}
