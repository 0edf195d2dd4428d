import { Database as Sqlite } from "bun:sqlite";
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "@model-gateway/gateway/config.ts";
import { InstanceLock } from "@model-gateway/gateway/kernel/instance-lock.ts";
import { closeFolder, privateFolder } from "@model-gateway/gateway/kernel/private-files.ts";
import { verifyLedger } from "@model-gateway/gateway/rooms/ledger/index.ts";
import { databaseId, openStorage, SQLITE_FILE } from "@model-gateway/gateway/storage/index.ts";
import { CliError, type Invocation, needed } from "../command.ts";
import { serviceConfig } from "./migrate.ts";
import { dumpPostgres, forgetShared, restorePostgres } from "./postgres-tools.ts";

const DUMP_FILE = "database.sql";
const JOURNAL_DIR = "journal";
const LOCK_SUFFIX = ".lock";
/** A lock, and what SQLite keeps beside it. */
const LOCK_FILE = /\.lock(-journal)?$/;

export async function backup({ words, output }: Invocation): Promise<void> {
  const target = needed(words, 0, "the directory to write to");
  const config = serviceConfig(process.env);
  if (existsSync(target) && readdirSync(target).length > 0)
    throw new CliError(`${target} is not empty; name a new directory`);
  if (!existsSync(config.dataDir))
    throw new CliError(`there is no data directory at ${config.dataDir}; set SERVICE_DATA_DIR`);
  privateFolder(target);
  // The journal goes first: a row that is settled meanwhile is then in both, and is counted once.
  const files = copyOthers(config.dataDir, target);
  if (config.databaseUrl) dumpPostgres(config.databaseUrl, join(target, DUMP_FILE));
  else copySqlite(join(config.dataDir, SQLITE_FILE), join(target, SQLITE_FILE));
  files.push(config.databaseUrl ? DUMP_FILE : SQLITE_FILE);
  closeFolder(target);
  output.result({ directory: target, files }, () => [
    `Written to ${target}:`,
    ...files.map((file) => `  ${file}`),
  ]);
}

export async function restore({ words, options, output }: Invocation): Promise<void> {
  const source = needed(words, 0, "the directory of the backup");
  const config = serviceConfig(process.env);
  const wanted = config.databaseUrl ? DUMP_FILE : SQLITE_FILE;
  if (!existsSync(join(source, wanted)))
    throw new CliError(
      `${source} has no ${wanted}: it is no backup of ${config.databaseUrl ? "a Postgres" : "an embedded"} database; ${config.databaseUrl ? "unset" : "set"} SERVICE_DATABASE_URL, or name another directory`,
    );
  const force = options.force === true;
  clearDataDir(config.dataDir, force);
  if (config.databaseUrl) await restorePostgres(config.databaseUrl, join(source, DUMP_FILE), { force });
  privateFolder(config.dataDir);
  const files = copyOthers(source, config.dataDir, { without: DUMP_FILE });
  if (!config.databaseUrl) copyFileSync(join(source, SQLITE_FILE), join(config.dataDir, SQLITE_FILE));
  closeFolder(config.dataDir);
  const { ok, accounts, problems } = await opened(config);
  output.result({ directory: config.dataDir, files: [...files, wanted], ledger: { ok, problems } }, () => [
    `Restored ${wanted} and ${files.length} other files`,
    ok ? `The ledger is in order: ${accounts} accounts recomputed` : "The ledger does not add up:",
    ...problems.map(({ check, message }) => `  ${check}: ${message}`),
  ]);
  if (!ok) process.exitCode = 1;
}

/** The schema is brought up to date, since a backup may be older than this version. */
async function opened(config: Config) {
  const db = await openStorage(config);
  try {
    if (config.redisUrl) await forgetShared(config.redisUrl, await databaseId(db, config));
    return await verifyLedger(db);
  } finally {
    await db.close();
  }
}

/** Makes room for a backup, never under a service that runs. */
function clearDataDir(dataDir: string, force: boolean): void {
  if (!existsSync(dataDir) || readdirSync(dataDir).length === 0) return;
  const journal = join(dataDir, JOURNAL_DIR);
  const locks = existsSync(journal) ? readdirSync(journal).filter((name) => name.endsWith(LOCK_SUFFIX)) : [];
  for (const name of locks) {
    const lock = InstanceLock.tryAcquire(join(journal, name));
    if (!lock) throw new CliError(`a service is running on ${dataDir}; stop it first`);
    lock.release();
  }
  if (!force) throw new CliError(`${dataDir} is not empty; --force replaces what is there`);
  // Only what is the service's: the directory may have been named by mistake.
  const own = readdirSync(dataDir).filter((name) => name.startsWith(SQLITE_FILE) || name === JOURNAL_DIR);
  for (const name of own) rmSync(join(dataDir, name), { recursive: true });
}

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

/** Everything beside the database: secrets and the journal of usage that is not settled yet. */
function copyOthers(from: string, to: string, { inside = "", without = "" } = {}): string[] {
  const copied: string[] = [];
  for (const name of readdirSync(join(from, inside))) {
    const path = join(inside, name);
    if (name.startsWith(SQLITE_FILE) || LOCK_FILE.test(name) || path === without) continue;
    try {
      if (statSync(join(from, path)).isDirectory()) {
        mkdirSync(join(to, path), { recursive: true, mode: 0o700 });
        copied.push(...copyOthers(from, to, { inside: path, without }));
      } else {
        copyFileSync(join(from, path), join(to, path));
        copied.push(path);
      }
    } catch (error) {
      // A journal file that is gone by now was settled, so the database, which is copied later, has it.
      if ((error as { code?: string }).code !== "ENOENT") throw error;
    }
  }
  return copied;
}
