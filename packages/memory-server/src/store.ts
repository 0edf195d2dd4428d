import { Database } from "bun:sqlite";
import { normalised, queryTerms, spaced } from "./extract.ts";

const FACTS_PER_USER_MAX = 10_000;
/** For how long a repeated write is recognised. */
const WRITES_KEPT_MS = 7 * 86_400_000;

export interface Fact {
  node_id: string;
  text: string;
  score: number;
}

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS facts (
    id INTEGER PRIMARY KEY,
    node_id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    text TEXT NOT NULL,
    normal TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    UNIQUE (user_id, normal)
  );
  CREATE INDEX IF NOT EXISTS facts_seen ON facts (user_id, seen_at);
  CREATE TABLE IF NOT EXISTS writes (
    user_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    node_ids TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, idempotency_key)
  );
  CREATE INDEX IF NOT EXISTS writes_age ON writes (written_at);
  CREATE VIRTUAL TABLE IF NOT EXISTS facts_index USING fts5(owner, body, tokenize = 'porter unicode61 remove_diacritics 2');
`;

/** The owner as one word of the index, so that a search reads only that person's postings. */
const ownerWord = (userId: string) =>
  `u${new Bun.CryptoHasher("sha256").update(userId).digest("hex").slice(0, 32)}`;
const quoted = (term: string) => `"${term.replaceAll('"', '""')}"`;

/** Facts per person in one SQLite file, found again by full-text search. */
export class FactStore {
  readonly #db: Database;

  constructor(
    file: string,
    readonly clock: { now(): number },
  ) {
    this.#db = new Database(file, { create: true, strict: true });
    this.#db.run("PRAGMA busy_timeout = 5000");
    this.#db.run("PRAGMA journal_mode = WAL");
    this.#db.run(SCHEMA);
  }

  /** Best matches first. */
  recall(userId: string, query: string, limit: number): Fact[] {
    const terms = queryTerms(query);
    if (terms.length === 0) return [];
    const match = `owner : ${quoted(ownerWord(userId))} AND body : (${terms.map(quoted).join(" OR ")})`;
    return this.#db
      .query<Fact, [string, string, number]>(
        `SELECT f.node_id, f.text, -bm25(facts_index, 0.0, 1.0) AS score
         FROM facts_index JOIN facts f ON f.id = facts_index.rowid
         WHERE facts_index MATCH ?1 AND f.user_id = ?2
         ORDER BY bm25(facts_index, 0.0, 1.0), f.seen_at DESC LIMIT ?3`,
      )
      .all(match, userId, limit);
  }

  /** Stores the facts that are new; the same key again returns what the first call did. */
  write(userId: string, facts: readonly string[], idempotencyKey: string): string[] {
    return this.#db
      .transaction(() => {
        const nowMs = this.clock.now();
        const done = this.#db
          .query<{ node_ids: string }, [string, string]>(
            "SELECT node_ids FROM writes WHERE user_id = ?1 AND idempotency_key = ?2",
          )
          .get(userId, idempotencyKey);
        if (done) return JSON.parse(done.node_ids) as string[];
        const nodeIds = facts.map((text) => this.#upsert(userId, text, nowMs));
        this.#db.run("DELETE FROM writes WHERE written_at < ?1", [nowMs - WRITES_KEPT_MS]);
        this.#db.run(
          "INSERT INTO writes (user_id, idempotency_key, node_ids, written_at) VALUES (?1, ?2, ?3, ?4)",
          [userId, idempotencyKey, JSON.stringify(nodeIds), nowMs],
        );
        this.#forgetOldest(userId);
        return nodeIds;
      })
      .immediate();
  }

  /** Newest first. */
  list(userId: string, { limit, offset }: { limit: number; offset: number }) {
    const items = this.#db
      .query<Omit<Fact, "score">, [string, number, number]>(
        `SELECT node_id, text FROM facts WHERE user_id = ?1
         ORDER BY seen_at DESC, id DESC LIMIT ?2 OFFSET ?3`,
      )
      .all(userId, limit, offset);
    const counted = this.#db
      .query<{ total: number }, [string]>("SELECT COUNT(*) AS total FROM facts WHERE user_id = ?1")
      .get(userId)!;
    return { items, total: counted.total };
  }

  delete(userId: string, nodeId: string): boolean {
    return this.#db
      .transaction(() => {
        const fact = this.#db
          .query<{ id: number }, [string, string]>("SELECT id FROM facts WHERE user_id = ?1 AND node_id = ?2")
          .get(userId, nodeId);
        if (fact) this.#remove(fact.id);
        return fact !== null;
      })
      .immediate();
  }

  close(): void {
    this.#db.close();
  }

  #upsert(userId: string, text: string, nowMs: number): string {
    const normal = normalised(text);
    const known = this.#db
      .query<{ node_id: string }, [number, string, string]>(
        "UPDATE facts SET seen_at = ?1 WHERE user_id = ?2 AND normal = ?3 RETURNING node_id",
      )
      .get(nowMs, userId, normal);
    if (known) return known.node_id;
    const nodeId = crypto.randomUUID();
    const { id } = this.#db
      .query<{ id: number }, [string, string, string, string, number]>(
        "INSERT INTO facts (node_id, user_id, text, normal, seen_at) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
      )
      .get(nodeId, userId, text, normal, nowMs)!;
    this.#db.run("INSERT INTO facts_index (rowid, owner, body) VALUES (?1, ?2, ?3)", [
      id,
      ownerWord(userId),
      spaced(text),
    ]);
    return nodeId;
  }

  #forgetOldest(userId: string): void {
    const beyond = this.#db
      .query<{ id: number }, [string]>(
        `SELECT id FROM facts WHERE user_id = ?1 ORDER BY seen_at DESC, id DESC LIMIT -1 OFFSET ${FACTS_PER_USER_MAX}`,
      )
      .all(userId);
    for (const { id } of beyond) this.#remove(id);
  }

  #remove(id: number): void {
    this.#db.run("DELETE FROM facts_index WHERE rowid = ?1", [id]);
    this.#db.run("DELETE FROM facts WHERE id = ?1", [id]);
  }
}
