import type { Command } from "../command.ts";

/** Commands that work on the service's own files, whose code is loaded when they run: it is most of the program. */
export const doctor: Command = {
  name: "doctor",
  summary: "Find what keeps the service from working, and say what to do",
  examples: [
    "model-gateway doctor",
    "SERVICE_PORT=9000 model-gateway doctor --json",
    "model-gateway doctor --url https://models.example.org",
  ],
  run: async (invocation) => (await import("../service/doctor/doctor.ts")).doctor(invocation),
};

export const migrate: Command = {
  name: "migrate",
  summary: "Bring the database's schema up to date",
  examples: ["model-gateway migrate", "SERVICE_DATABASE_URL=postgres://… model-gateway migrate"],
  run: async (invocation) => (await import("../service/migrate.ts")).migrate(invocation),
};

export const backup: Command = {
  name: "backup",
  summary: "Copy the database, the journal and the secrets to a directory while the service runs",
  examples: [
    "model-gateway backup /backups/2026-11-15",
    "SERVICE_DATABASE_URL=postgres://… model-gateway backup /backups/2026-11-15",
  ],
  run: async (invocation) => (await import("../service/backup.ts")).backup(invocation),
};

export const restore: Command = {
  name: "restore",
  summary: "Put a backup in place of the database, the journal and the secrets; the service must be stopped",
  examples: [
    "model-gateway restore /backups/2026-11-15",
    "SERVICE_DATABASE_URL=postgres://… model-gateway restore /backups/2026-11-15 --force",
  ],
  options: { force: { type: "boolean", help: "replace what is there" } },
  run: async (invocation) => (await import("../service/backup.ts")).restore(invocation),
};
