import { BoundedMap } from "../../../kernel/bounded.ts";
import { type Database, insertRows } from "../../../storage/contract.ts";

export interface ResponseRow {
  id: string;
  user_id: string;
  previous_id: string | null;
  /** Set once something went on from it. */
  conversation_id: string | null;
  /** JSON of the chat messages: what was asked, and the answer. */
  messages: string;
  created_at: string;
}

/** How much of what led to a response is read. */
interface ChainLimits {
  turnsMax: number;
  charsMax: number;
}

/** The newest ones of each user that are kept. */
const KEPT_PER_USER_MAX = 1_000;
/** A user's older ones are removed after this many more: to find them, all that are kept must be counted. */
const REMOVED_EVERY = 100;
const USERS_COUNTED_MAX = 10_000;

/** SQL of the stored responses. */
export class ResponseStore {
  /** How many more responses of a user are stored before the older ones are removed. */
  readonly #untilCount = new BoundedMap<string, number>(USERS_COUNTED_MAX);

  constructor(readonly db: Database) {}

  /** Those that lead to this one, the newest first, as far as one user has them and the limits allow. */
  chain(userId: string, id: string, { turnsMax, charsMax }: ChainLimits): Promise<ResponseRow[]> {
    return this.db.all<ResponseRow>(
      `WITH RECURSIVE chain (id, previous_id, depth, chars) AS (
         SELECT id, previous_id, 1, length(messages) FROM stored_responses WHERE id = $1 AND user_id = $2
         UNION ALL
         SELECT r.id, r.previous_id, chain.depth + 1, chain.chars + length(r.messages) FROM stored_responses r
         JOIN chain ON r.id = chain.previous_id
         WHERE r.user_id = $2 AND chain.depth < $3 AND chain.chars + length(r.messages) <= $4
       )
       SELECT r.id, r.user_id, r.previous_id, r.conversation_id, r.messages, r.created_at
       FROM chain JOIN stored_responses r ON r.id = chain.id ORDER BY chain.depth`,
      [id, userId, turnsMax, charsMax],
    );
  }

  async insert(rows: readonly ResponseRow[]): Promise<void> {
    await this.db.transaction(
      async (tx) => {
        await insertRows(
          tx,
          "stored_responses (id, user_id, previous_id, conversation_id, messages, created_at)",
          rows.map((row) => [
            row.id,
            row.user_id,
            row.previous_id,
            row.conversation_id,
            row.messages,
            row.created_at,
          ]),
        );
        for (const userId of this.#usersToCount(rows)) {
          // Ids are in the order of time.
          await tx.run(
            `DELETE FROM stored_responses WHERE user_id = $1 AND id <=
             (SELECT id FROM stored_responses WHERE user_id = $1 ORDER BY id DESC LIMIT 1 OFFSET ${KEPT_PER_USER_MAX})`,
            [userId],
          );
        }
      },
      { isUnsynced: true },
    );
  }

  /** Users whose older responses are to be removed now: at their first one here, and then every so often. */
  #usersToCount(rows: readonly ResponseRow[]): Set<string> {
    const users = new Set<string>();
    for (const { user_id } of rows) {
      const left = (this.#untilCount.get(user_id) ?? 1) - 1;
      if (left === 0) users.add(user_id);
      this.#untilCount.set(user_id, left || REMOVED_EVERY);
    }
    return users;
  }

  async setConversation(id: string, conversationId: string): Promise<void> {
    await this.db.run("UPDATE stored_responses SET conversation_id = $2 WHERE id = $1", [id, conversationId]);
  }

  /** At most `rowsMax` of those that are older. */
  removeOlderThan(createdAt: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM stored_responses WHERE id IN
         (SELECT id FROM stored_responses WHERE created_at < $1 ORDER BY created_at LIMIT $2)`,
      [createdAt, rowsMax],
    );
  }
}
