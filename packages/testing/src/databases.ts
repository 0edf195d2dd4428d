import { describe } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Database } from "@model-gateway/gateway/storage/contract.ts";
import { openDatabase, openStorage, type StorageOptions } from "@model-gateway/gateway/storage/index.ts";

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

/** Runs `work` on a migrated database of its own. */
export async function withDatabase(
  fresh: () => Promise<TestDatabase>,
  work: (db: Database) => Promise<void>,
): Promise<void> {
  const { options, drop } = await fresh();
  const db = await openStorage(options);
  try {
    await work(db);
  } finally {
    await db.close();
    await drop();
  }
}

export { openDatabase, openStorage };
