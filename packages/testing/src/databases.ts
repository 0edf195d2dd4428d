import { describe } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Database } from "@model-gateway/gateway/storage/contract.ts";
import { openDatabase, openStorage, type StorageOptions } from "@model-gateway/gateway/storage/index.ts";

export interface TestDatabase {
  /** A fresh place to store things. */
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

async function onServer(statement: string): Promise<void> {
  const admin = new Bun.SQL(process.env.TEST_POSTGRES_URL!, { max: 1 });
  await admin.unsafe(statement).finally(() => admin.close());
}

async function newPostgres(template: string): Promise<TestDatabase> {
  const name = `test_${crypto.randomUUID().replaceAll("-", "")}`;
  await onServer(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  const url = new URL(process.env.TEST_POSTGRES_URL!);
  url.pathname = `/${name}`;
  const dataDir = temporaryDir();
  return {
    options: { dataDir, databaseUrl: url.href },
    async drop() {
      await onServer(`DROP DATABASE ${name} WITH (FORCE)`);
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

const emptyPostgres = () => newPostgres("template1");

async function migratePostgres(): Promise<string> {
  const { options } = await emptyPostgres();
  await (await openStorage(options)).close();
  return new URL(options.databaseUrl!).pathname.slice(1);
}

/** Copied for every test of this process: Postgres takes half a second of CPU for the migrations. */
let migrated: Promise<string> | undefined;

async function freshPostgres(): Promise<TestDatabase> {
  migrated ??= migratePostgres();
  return newPostgres(await migrated);
}

export const kinds = process.env.TEST_POSTGRES_URL
  ? (["sqlite", "postgres"] as const)
  : (["sqlite"] as const);
export type DatabaseName = (typeof kinds)[number];
/** Its schema is up to date, or will be when it is opened with `openStorage`. */
export const freshDatabase = (kind: DatabaseName): Promise<TestDatabase> =>
  kind === "sqlite" ? freshSqlite() : freshPostgres();
/** For those who migrate it step by step, or fill it with a backup. */
export const emptyDatabase = (kind: DatabaseName): Promise<TestDatabase> =>
  kind === "sqlite" ? freshSqlite() : emptyPostgres();

/** Runs the same tests on each database that the machine has; several instances share a Postgres alone. */
export function onEachDatabase(
  title: string,
  tests: (fresh: () => Promise<TestDatabase>, kind: DatabaseName) => void,
): void {
  for (const kind of process.env.TEST_DEPLOYMENT === "instances" ? kinds.slice(1) : kinds)
    describe(`${title} on ${kind}`, () => tests(() => freshDatabase(kind), kind));
}

type Work = (db: Database) => Promise<void>;
type Fresh = () => Promise<TestDatabase>;

/** Runs `work` on a migrated database of its own. */
export const withDatabase = (fresh: Fresh, work: Work): Promise<void> => withOpened(fresh, openStorage, work);

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

/** The same with one of its functions replaced. */
export const withOwn = <T extends object, K extends keyof T>(whole: T, name: K, own: T[K]): T =>
  new Proxy(whole, {
    get: (target, key) => {
      const value = key === name ? own : Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
