import { describe } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Database } from "@model-gateway/gateway/storage/contract.ts";
import { openDatabase, openStorage, type StorageOptions } from "@model-gateway/gateway/storage/index.ts";
import { migrate } from "@model-gateway/gateway/storage/migrate.ts";
import { migrations } from "@model-gateway/gateway/storage/migrations/index.ts";

export interface TestDatabase {
  /** A fresh, empty place to store things. */
  options: StorageOptions;
  drop(): Promise<void>;
}

const temporaryDir = () => mkdtempSync(join(tmpdir(), "gateway-db-"));

async function freshSqlite(): Promise<TestDatabase> {
  const dataDir = temporaryDir();
  return {
    options: { dataDir, databaseUrl: null },
    drop: async () => rmSync(dataDir, { recursive: true, force: true }),
  };
}

async function freshPostgres(): Promise<TestDatabase> {
  const server = process.env.TEST_POSTGRES_URL!;
  const name = `test_${crypto.randomUUID().replaceAll("-", "")}`;
  const admin = new Bun.SQL(server, { max: 1 });
  await admin.unsafe(`CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const dataDir = temporaryDir();
  return {
    options: { dataDir, databaseUrl: url.href },
    async drop() {
      await admin.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
      await admin.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

export const kinds = process.env.TEST_POSTGRES_URL
  ? (["sqlite", "postgres"] as const)
  : (["sqlite"] as const);
export type DatabaseName = (typeof kinds)[number];
export const freshDatabase = (kind: DatabaseName): Promise<TestDatabase> =>
  kind === "sqlite" ? freshSqlite() : freshPostgres();

/** Runs the same tests on each database that the machine has. */
export function onEachDatabase(
  title: string,
  tests: (fresh: () => Promise<TestDatabase>, kind: DatabaseName) => void,
): void {
  for (const kind of kinds) describe(`${title} on ${kind}`, () => tests(() => freshDatabase(kind), kind));
}

type Work = (db: Database) => Promise<void>;
type Fresh = () => Promise<TestDatabase>;

/** Runs `work` on a migrated database of its own. */
export const withDatabase = (fresh: Fresh, work: Work): Promise<void> => withOpened(fresh, openStorage, work);

/** Runs `work` on a database as an earlier release left it, whose last migration has that id. */
export const withDatabaseAt = (fresh: Fresh, lastMigrationId: number, work: Work): Promise<void> =>
  withOpened(fresh, openDatabase, async (db) => {
    await migrate(
      db,
      migrations.filter(({ id }) => id <= lastMigrationId),
    );
    await work(db);
  });

async function withOpened(fresh: Fresh, open: typeof openStorage, work: Work): Promise<void> {
  const { options, drop } = await fresh();
  const db = await open(options);
  try {
    await work(db);
  } finally {
    await db.close();
    await drop();
  }
}

export { openDatabase, openStorage };
