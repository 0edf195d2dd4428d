import { type Database, insertAll, insertRow, updateRows } from "../../storage/contract.ts";

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
  /** JSON of the content, if it is not a plain text. */
  parts: string | null;
  tool_call_id: string | null;
  incomplete: string | null;
  created_at: string;
}

const LISTED_MAX = 1_000;
/** Replaces a message whose text is too large to read back. */
const TOO_LARGE = "(too large to be read back)";

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
    const sql = "SELECT id, user_id, title, created_at, updated_at, backend FROM conversations WHERE id = $1";
    return this.db.get<ConversationRow>(sql, [id]);
  }

  async bind(id: string, { from, to }: { from: string | null; to: string }): Promise<void> {
    const sql = "UPDATE conversations SET backend = $2 WHERE id = $1 AND COALESCE(backend, '') = $3";
    await this.db.run(sql, [id, to, from ?? ""]);
  }

  /** The newest messages, oldest first: at most `limit` of them and `bytesMax` in all. */
  messages(conversationId: string, { limit, bytesMax }: { limit: number; bytesMax: number }) {
    // The database adds up the sizes without reading the texts, because a conversation may
    // hold far more than fits in memory. Of a single message that is too large only the text is read.
    const orNull = (name: string) => `CASE WHEN whole <= $3 THEN m.${name} END AS ${name}`;
    return this.db.all<MessageRow>(
      `SELECT m.id, m.role, CASE WHEN bytes > 0 OR whole = 0 THEN m.content ELSE '${TOO_LARGE}' END AS content,
         ${["images", "tool_calls", "parts"].map(orNull)}, m.tool_call_id, m.incomplete, m.created_at
       FROM conversation_messages m
       JOIN (SELECT position, whole, bytes, SUM(bytes) OVER (ORDER BY position DESC) AS so_far
             FROM (SELECT position, whole,
                     CASE WHEN whole <= $3 THEN whole WHEN said <= $3 THEN said ELSE 0 END AS bytes
                   FROM (SELECT position, OCTET_LENGTH(content) AS said,
                           OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(images), 0)
                             + COALESCE(OCTET_LENGTH(tool_calls), 0) + COALESCE(OCTET_LENGTH(parts), 0) AS whole
                         FROM conversation_messages WHERE conversation_id = $1
                         ORDER BY position DESC LIMIT $2) AS newest) AS counted) AS sized
         ON sized.position = m.position
       WHERE m.conversation_id = $1 AND sized.so_far <= $3 ORDER BY m.position`,
      [conversationId, limit, bytesMax],
    );
  }

  async append(conversationId: string, messages: readonly MessageRow[]): Promise<void> {
    await this.db.transaction(async (tx) => {
      const newest = messages.at(-1)!.created_at;
      // The update also locks the row, so that two turns cannot take the same positions.
      const touched = await updateRows(tx, "conversations", { id: conversationId }, { updated_at: newest });
      if (touched === 0) return;
      const sql = "SELECT MAX(position) AS last FROM conversation_messages WHERE conversation_id = $1";
      const row = await tx.get<{ last: number | null }>(sql, [conversationId]);
      const first = (row?.last ?? 0) + 1;
      const place = (i: number) => ({ conversation_id: conversationId, position: first + i });
      const rows = messages.map((message, i) => ({ ...message, ...place(i) }));
      await insertAll(tx, "conversation_messages", rows);
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
