import type { Migration } from "../migrate.ts";

const APPEND_ONLY = "the audit log is append-only";

export const audit: Migration = {
  id: 19,
  name: "audit log",
  statements: [
    // Entries outlive the accounts that they name, so nothing here references another table.
    `CREATE TABLE audit_log (
      id {uuid} PRIMARY KEY,
      created_ms {bigint} NOT NULL,
      action TEXT NOT NULL,
      actor_id {uuid},
      actor TEXT NOT NULL,
      ip TEXT NOT NULL,
      user_agent TEXT,
      target TEXT,
      details TEXT NOT NULL,
      request_id TEXT NOT NULL
    )`,
    "CREATE INDEX audit_log_created ON audit_log (created_ms)",
    "CREATE INDEX audit_log_action ON audit_log (action, id)",
    "CREATE INDEX audit_log_target ON audit_log (target, id)",
    // Rows leave when they are old, but none is ever changed.
    {
      sqlite: [
        `CREATE TRIGGER audit_log_append_only BEFORE UPDATE ON audit_log
         BEGIN SELECT RAISE(ABORT, '${APPEND_ONLY}'); END`,
      ],
      postgres: [
        `CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION '${APPEND_ONLY}'; END $$`,
        `CREATE TRIGGER audit_log_append_only BEFORE UPDATE ON audit_log
         FOR EACH ROW EXECUTE FUNCTION audit_log_append_only()`,
      ],
    },
  ],
};
