import { Database as Sqlite } from "bun:sqlite";
import { copyFileSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Config, readConfig } from "../../config.ts";
import { openDatabase, openStorage, SQLITE_FILE } from "../../storage/index.ts";
import { migrations } from "../../storage/migrations/index.ts";
import { CliError, type Command, needed } from "../command.ts";

/** The settings of the service on this machine, or what is wrong with them. */
export function serviceConfig(env: Record<string, string | undefined>): Config {
  const read = readConfig(env);
  if ("problems" in read) throw new CliError(read.problems.join("\n"));
  return read.config;
}

/** Ids of the applied migrations; none on a database that has never been used. */
export async function appliedMigrations(config: Config): Promise<number[]> {
  const db = await openDatabase(config);
  try {
    const rows = await db.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    return rows.map(({ id }) => id);
  } catch {
    return [];
  } finally {
    await db.close();
  }
}

export const migrate: Command = {
  name: "migrate",
  summary: "Bring the database's schema up to date",
  examples: ["model-gateway migrate", "SERVICE_DATABASE_URL=postgres://… model-gateway migrate"],
  async run({ output }) {
    const config = serviceConfig(process.env);
    const before = new Set(await appliedMigrations(config));
    await (await openStorage(config)).close();
    const applied = migrations.filter(({ id }) => !before.has(id)).map(({ id, name }) => ({ id, name }));
    output.result({ applied, schema: migrations.at(-1)?.id ?? 0 }, () =>
      applied.length === 0
        ? "The schema is up to date"
        : [`Applied ${applied.length}:`, ...applied.map(({ id, name }) => `  ${id} ${name}`)],
    );
  },
};

export const backup: Command = {
  name: "backup",
  summary: "Copy the embedded database, the journal and the secrets to a directory while the service runs",
  examples: ["model-gateway backup /backups/2026-11-15"],
  async run({ words, output }) {
    const target = needed(words, 0, "the directory to write to");
    const config = serviceConfig(process.env);
    if (existsSync(target) && readdirSync(target).length > 0)
      throw new CliError(`${target} is not empty; name a new directory`);
    if (!existsSync(config.dataDir))
      throw new CliError(`there is no data directory at ${config.dataDir}; set SERVICE_DATA_DIR`);
    mkdirSync(target, { recursive: true, mode: 0o700 });
    const files = copyOthers(config.dataDir, target);
    if (config.databaseUrl) dumpPostgres(config.databaseUrl, target);
    else copySqlite(join(config.dataDir, SQLITE_FILE), join(target, SQLITE_FILE));
    files.push(config.databaseUrl ? "database.sql" : SQLITE_FILE);
    output.result({ directory: target, files }, () => [
      `Written to ${target}:`,
      ...files.map((file) => `  ${file}`),
    ]);
  },
};

/** A consistent copy, also while the service writes. */
function copySqlite(from: string, to: string): void {
  if (!existsSync(from)) throw new CliError(`there is no database at ${from}`);
  const db = new Sqlite(from, { readwrite: true, create: false });
  try {
    db.run("PRAGMA busy_timeout = 10000");
    db.run("VACUUM INTO ?", [to]);
  } finally {
    db.close();
  }
}

function dumpPostgres(url: string, target: string): void {
  const tool = Bun.which("pg_dump");
  if (!tool)
    throw new CliError(
      "pg_dump is not installed; install the Postgres client, or let your database's own backups do it",
    );
  const { exitCode, stderr } = Bun.spawnSync([tool, "--file", join(target, "database.sql"), url]);
  if (exitCode !== 0) throw new CliError(`pg_dump failed: ${stderr.toString().trim()}`);
}

/** Everything beside the database: secrets and the journal of usage that is not settled yet. */
function copyOthers(from: string, to: string, inside = ""): string[] {
  const copied: string[] = [];
  for (const name of readdirSync(join(from, inside))) {
    const path = join(inside, name);
    if (name.startsWith(SQLITE_FILE)) continue;
    if (statSync(join(from, path)).isDirectory()) {
      mkdirSync(join(to, path), { recursive: true, mode: 0o700 });
      copied.push(...copyOthers(from, to, path));
    } else {
      copyFileSync(join(from, path), join(to, path));
      copied.push(path);
    }
  }
  return copied;
}
