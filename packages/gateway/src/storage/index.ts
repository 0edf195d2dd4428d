import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { sha256Hex } from "../kernel/ids.ts";
import { privateFile, privateFolder } from "../kernel/private-files.ts";
import { shownUrl } from "../kernel/shown-address.ts";
import type { Database } from "./contract.ts";
import { migrate } from "./migrate.ts";
import { SqliteDatabase } from "./sqlite/database.ts";

export interface StorageOptions {
  dataDir: string;
  databaseUrl: string | null;
}

export const SQLITE_FILE = "gateway.sqlite";
const FILE_SUFFIXES = ["", "-wal", "-shm"];
/** One for the transaction, one for queries beside it. */
const SETTLING_CONNECTIONS_MAX = 2;

export async function openDatabase(
  { dataDir, databaseUrl }: StorageOptions,
  { forSettling = false } = {},
): Promise<Database> {
  if (databaseUrl) {
    // Loaded only if used: Bun's Postgres client takes several milliseconds.
    const { PostgresDatabase } = await import("./postgres/database.ts");
    const options = forSettling ? { connectionsMax: SETTLING_CONNECTIONS_MAX } : {};
    return PostgresDatabase.open(databaseUrl, options).catch((error: Error) => {
      throw new Error(`${shownUrl(databaseUrl)} cannot be reached: ${error.message}`, { cause: error });
    });
  }
  privateFolder(dataDir);
  const path = join(dataDir, SQLITE_FILE);
  for (const suffix of FILE_SUFFIXES)
    if (suffix === "" || existsSync(path + suffix)) privateFile(path + suffix);
  return SqliteDatabase.open(path, { isAttended: forSettling }).catch((error: Error) => {
    throw new Error(`${path} cannot be opened: ${error.message}`, { cause: error });
  });
}

/** For commands that only read: refuses a database that no service has used, and creates none. */
export async function openUsedDatabase(options: StorageOptions): Promise<Database> {
  const { databaseUrl, dataDir } = options;
  const file = join(dataDir, SQLITE_FILE);
  const refuse = (): never => {
    const where = databaseUrl ? shownUrl(databaseUrl) : file;
    throw new Error(
      `no service has used ${where}; set SERVICE_DATA_DIR or SERVICE_DATABASE_URL as it has them`,
    );
  };
  if (!databaseUrl && !existsSync(file)) refuse();
  const db = await openDatabase(options);
  if (await db.get("SELECT id FROM schema_migrations LIMIT 1").catch(() => null)) return db;
  await db.close();
  return refuse();
}

export async function openStorage(options: StorageOptions): Promise<Database> {
  const db = await openDatabase(options);
  try {
    await migrate(db);
  } catch (error) {
    await db.close();
    throw error;
  }
  return db;
}

const ID_LENGTH = 16;

/** Identifies the database, whatever its address is on this machine; copies of it have other ids. */
export async function databaseId(db: Database, { dataDir }: StorageOptions): Promise<string> {
  const place =
    db.dialect === "sqlite"
      ? `${hostname()} ${resolve(dataDir)}`
      : (await db.get<{ place: string }>(
          `SELECT CONCAT(system_identifier, ' ', oid) AS place
           FROM pg_control_system(), pg_database WHERE datname = current_database()`,
        ))!.place;
  return sha256Hex(place).slice(0, ID_LENGTH);
}
