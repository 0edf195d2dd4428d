import { type Database, insertAll, insertRow } from "../../storage/contract.ts";

export interface ConversationRow {
  id: string;
  user_id: string;
  title: string;
  created_at: string;
  updated_at: string;
  backend: string | null;
}

export interface MessageRow {
  id: string;
  role: string;
  content: string;
  images: string | null;
  tool_calls: string | null;
  /** JSON text of the content, where that is not a text. */
  parts: string | null;
  tool_call_id: string | null;
  incomplete: string | null;
  created_at: string;
}

const LISTED_MAX = 1_000;

export class ConversationStore {
  constructor(readonly db: Database) {}

  async insert(row: ConversationRow): Promise<void> {
    await insertRow(this.db, "conversations", row);
  }

  listOf(userId: string): Promise<(Omit<ConversationRow, "backend"> & { message_count: number })[]> {
    return this.db.all(
      `SELECT c.id, c.user_id, c.title, c.created_at, c.updated_at,
         (SELECT COUNT(*) FROM conversation_messages m WHERE m.conversation_id = c.id) AS message_count
       FROM conversations c WHERE c.user_id = $1 ORDER BY c.updated_at DESC, c.id LIMIT ${LISTED_MAX}`,
      [userId],
    );
  }

  find(id: string): Promise<ConversationRow | null> {
    return this.db.get<ConversationRow>(
      "SELECT id, user_id, title, created_at, updated_at, backend FROM conversations WHERE id = $1",
      [id],
    );
  }

  async bind(id: string, { from, to }: { from: string | null; to: string }): Promise<void> {
    await this.db.run("UPDATE conversations SET backend = $2 WHERE id = $1 AND COALESCE(backend, '') = $3", [
      id,
      to,
      from ?? "",
    ]);
  }

  /** The newest messages, oldest first: at most `limit` of them and `charsMax` in all. */
  messages(
    conversationId: string,
    { limit, charsMax }: { limit: number; charsMax: number },
  ): Promise<MessageRow[]> {
    // Sizes are added up in the database: a conversation may hold far more than fits in memory.
    return this.db.all<MessageRow>(
      `SELECT m.id, m.role, m.content, m.images, m.tool_calls, m.parts, m.tool_call_id, m.incomplete, m.created_at
       FROM conversation_messages m
       JOIN (SELECT position, SUM(chars) OVER (ORDER BY position DESC) AS chars
             FROM (SELECT position,
                     LENGTH(content) + COALESCE(LENGTH(images), 0) + COALESCE(LENGTH(tool_calls), 0)
                       + COALESCE(LENGTH(parts), 0) AS chars
                   FROM conversation_messages WHERE conversation_id = $1
                   ORDER BY position DESC LIMIT $2) AS newest) AS sized
         ON sized.position = m.position
       WHERE m.conversation_id = $1 AND sized.chars <= $3 ORDER BY m.position`,
      [conversationId, limit, charsMax],
    );
  }

  async append(conversationId: string, messages: readonly MessageRow[]): Promise<boolean> {
    return this.db.transaction(async (tx) => {
      const newest = messages.at(-1)!.created_at;
      // The update also locks the row, so that two turns cannot take the same positions.
      const touched = await tx.run("UPDATE conversations SET updated_at = $2 WHERE id = $1", [
        conversationId,
        newest,
      ]);
      if (touched === 0) return false;
      const row = await tx.get<{ last: number | null }>(
        "SELECT MAX(position) AS last FROM conversation_messages WHERE conversation_id = $1",
        [conversationId],
      );
      const first = (row?.last ?? 0) + 1;
      const place = (i: number) => ({ conversation_id: conversationId, position: first + i });
      const rows = messages.map((message, i) => ({ ...message, ...place(i) }));
      await insertAll(tx, "conversation_messages", rows);
      return true;
    });
  }

  /** Removes a message and all that follow it; 0 when the conversation has no such message. */
  removeFrom(conversationId: string, messageId: string): Promise<number> {
    return this.db.run(
      `DELETE FROM conversation_messages WHERE conversation_id = $1 AND position >=
         (SELECT position FROM conversation_messages WHERE conversation_id = $1 AND id = $2)`,
      [conversationId, messageId],
    );
  }

  async rename(id: string, title: string): Promise<void> {
    await this.db.run("UPDATE conversations SET title = $2 WHERE id = $1", [id, title]);
  }

  async remove(id: string): Promise<void> {
    await this.db.run("DELETE FROM conversations WHERE id = $1", [id]);
  }
}
