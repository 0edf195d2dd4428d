import type { z } from "zod";
import { Conditions, type Database, insertRow, selectIn } from "../../storage/contract.ts";
import type { Filter } from "./methods.ts";

export interface AuditRow {
  id: string;
  created_ms: number;
  action: string;
  actor_id: string | null;
  actor: string;
  ip: string;
  user_agent: string | null;
  target: string | null;
  details: string;
  request_id: string;
}

export type AuditFilter = z.output<typeof Filter>;

const COLUMNS = "id, created_ms, action, actor_id, actor, ip, user_agent, target, details, request_id";
/** Escapes text for LIKE. */
const literal = (text: string) => text.replace(/[\\%_]/g, "\\$&");

export class AuditStore {
  constructor(readonly db: Database) {}

  /** Existing entries stay: the process may have been killed right after adding one. */
  async add(row: AuditRow): Promise<void> {
    await insertRow(this.db, "audit_log", row, "ON CONFLICT (id) DO NOTHING");
  }

  /** Newest first: ids are in the order of time. */
  list(filter: AuditFilter, limit: number): Promise<AuditRow[]> {
    const { actor, action, target, since, until, cursor } = filter;
    const sql = new Conditions().has("target", target);
    const like = (column: string, text: string) => `${column} LIKE ${sql.value(text)} ESCAPE '\\'`;
    if (cursor !== undefined) sql.add(`id < ${sql.value(cursor)}`);
    if (action !== undefined) sql.add(like("action", `${literal(action)}%`));
    if (actor !== undefined)
      sql.add(
        `(${like("actor", `%${literal(actor.toLowerCase())}%`)} OR CAST(actor_id AS TEXT) = ${sql.value(actor)})`,
      );
    if (since !== undefined) sql.add(`created_ms >= ${sql.value(Date.parse(since))}`);
    if (until !== undefined) sql.add(`created_ms < ${sql.value(Date.parse(until))}`);
    return this.db.all<AuditRow>(
      `SELECT ${COLUMNS} FROM audit_log ${sql.where} ORDER BY id DESC LIMIT ${limit}`,
      sql.params,
    );
  }

  /** Names of users, keys, groups and nodes by their ids. */
  async namesOf(ids: readonly string[]): Promise<Map<string, string>> {
    const names = { users: "email", api_keys: "name", user_groups: "name", agents: "name" };
    const found = await Promise.all(
      Object.entries(names).map(([table, name]) => {
        const sql = (list: string) => `SELECT id, ${name} AS name FROM ${table} WHERE id IN ${list}`;
        return selectIn<{ id: string; name: string }>(this.db, sql, ids);
      }),
    );
    return new Map(found.flat().map(({ id, name }) => [id, name]));
  }

  deleteBefore(beforeMs: number, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM audit_log WHERE id IN
         (SELECT id FROM audit_log WHERE created_ms < $1 ORDER BY created_ms LIMIT $2)`,
      [beforeMs, rowsMax],
    );
  }
}
