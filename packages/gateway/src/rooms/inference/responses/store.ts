import type { Database } from "../../../storage/contract.ts";

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

/** The newest ones of each user that are kept. */
const KEPT_PER_USER_MAX = 1_000;

/** SQL of the stored responses. */
export class ResponseStore {
  constructor(readonly db: Database) {}

  /** Those that lead to this one, the newest first, as far as one user has them and `limit` allows. */
  chain(userId: string, id: string, limit: number): Promise<ResponseRow[]> {
    return this.db.all<ResponseRow>(
      `WITH RECURSIVE chain (id, previous_id, depth) AS (
         SELECT id, previous_id, 1 FROM stored_responses WHERE id = $1 AND user_id = $2
         UNION ALL
         SELECT r.id, r.previous_id, chain.depth + 1 FROM stored_responses r
         JOIN chain ON r.id = chain.previous_id WHERE r.user_id = $2 AND chain.depth < $3
       )
       SELECT r.id, r.user_id, r.previous_id, r.conversation_id, r.messages, r.created_at
       FROM chain JOIN stored_responses r ON r.id = chain.id ORDER BY chain.depth`,
      [id, userId, limit],
    );
  }

  async insert(row: ResponseRow): Promise<void> {
    await this.db.transaction(async (tx) => {
      await tx.run(
        `INSERT INTO stored_responses (id, user_id, previous_id, conversation_id, messages, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)`,
        [row.id, row.user_id, row.previous_id, row.conversation_id, row.messages, row.created_at],
      );
      // Ids are in the order of time.
      await tx.run(
        `DELETE FROM stored_responses WHERE user_id = $1 AND id <=
           (SELECT id FROM stored_responses WHERE user_id = $1 ORDER BY id DESC LIMIT 1 OFFSET ${KEPT_PER_USER_MAX})`,
        [row.user_id],
      );
    });
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
