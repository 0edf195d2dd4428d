import { until } from "@model-gateway/testing/until.ts";
import { verifyLedger } from "../../packages/gateway/src/rooms/ledger/index.ts";
import type { Database } from "../../packages/gateway/src/storage/contract.ts";
import { openDatabase } from "../../packages/gateway/src/storage/index.ts";
import type { Instance } from "../cluster/support/cluster.ts";
import { type ClientRecord, type FaultRecord, type JournalRecord, readRecords } from "./records.ts";
import { readTold, type Told } from "./told.ts";
import type { Canaries, World } from "./world.ts";

/** A usage row, as far as it is checked. */
export interface UsageRow {
  id: string;
  ref: string | null;
  promptTokens: number;
  completionTokens: number;
  costUsd: number | null;
  points: number | null;
}

export interface Books {
  rows: UsageRow[];
  /** What `ledger verify` finds, in words. */
  ledgerProblems: string[];
  accounts: { id: string; type: string; balance: number }[];
  pool: { issued: number; left: number; paid: number; owed: number };
}

/** One instance after the end, when nothing is asked of it any more. */
export interface Rest {
  name: string;
  holds: number;
  callsInFlight: number;
  journalRows: number;
  rowsLost: number;
  /** Of this process, once it had worked a little; null: it was not running then. */
  rssMbBefore: number | null;
  rssMbAfter: number;
}

/** A text that was written somewhere, and whose secrets must not be in it. */
export interface Text {
  where: string;
  text: string;
  never: readonly (keyof Canaries)[];
}

/** Everything that a run leaves behind. */
export interface Evidence {
  clients: ClientRecord[];
  upstreams: JournalRecord[];
  faults: FaultRecord[];
  books: Books;
  instances: Rest[];
  /** Holds that Redis still has, by name. */
  sharedHolds: string[];
  texts: Text[];
  /** What different connections were told at the end. */
  told: Told[];
  canaries: Canaries;
}

const QUIET_WITHIN_MS = 90_000;
const RELEASED_WITHIN_MS = 20_000;
const EVERYTHING: (keyof Canaries)[] = ["prompt", "upstreamKey", "userKeys"];

/** Waits until nothing is under way on any instance and everything is in the database, as far as that comes to be. */
async function quiesce(instances: readonly Instance[]): Promise<void> {
  const names = ["gateway_calls_in_flight", "gateway_holds", "gateway_usage_journal_rows"];
  const isQuiet = async () => {
    for (const instance of instances)
      for (const name of names) if ((await instance.metric(name)) !== 0) return false;
    return true;
  };
  // What is still there afterwards is for the checker to say.
  await until("the instances are at rest", isQuiet, QUIET_WITHIN_MS).catch(() => {});
}

async function restOf(world: World): Promise<Rest[]> {
  return Promise.all(
    world.instances.map(async (instance, i) => ({
      name: `instance ${i}`,
      holds: await instance.metric("gateway_holds"),
      callsInFlight: await instance.metric("gateway_calls_in_flight"),
      journalRows: await instance.metric("gateway_usage_journal_rows"),
      rowsLost: await instance.metric("gateway_usage_rows_lost_total"),
      ...world.memoryOf(instance.pid),
    })),
  );
}

async function readBooks(db: Database, { groupId, poolPoints }: World): Promise<Books> {
  const rows = await db.all<Record<string, string | number | null>>(
    "SELECT id, ref_id, prompt_tokens, completion_tokens, cost, points FROM usage_records",
  );
  const { problems } = await verifyLedger(db);
  const accounts = (
    await db.all<{ id: string; type: string; balance: number }>(
      "SELECT id, type, balance FROM ledger_accounts",
    )
  ).map(({ balance, ...account }) => ({ ...account, balance: Number(balance) }));
  const pool = `group:${groupId}`;
  const paid = await db.get<{ paid: number | null }>(
    "SELECT SUM(u.points) AS paid FROM usage_records u JOIN api_keys k ON k.id = u.key_id WHERE k.group_id = $1",
    [groupId],
  );
  const debts = accounts.filter(({ id }) => id.startsWith(`debt:${pool}`));
  return {
    rows: rows.map((row) => ({
      id: String(row.id),
      ref: row.ref_id === null ? null : String(row.ref_id),
      promptTokens: Number(row.prompt_tokens),
      completionTokens: Number(row.completion_tokens),
      costUsd: row.cost === null ? null : Number(row.cost),
      points: row.points === null ? null : Number(row.points),
    })),
    ledgerProblems: problems.map(({ check, message }) => `${check}: ${message}`),
    accounts,
    pool: {
      issued: poolPoints,
      left: accounts.find(({ id }) => id === pool)?.balance ?? 0,
      paid: Number(paid?.paid ?? 0),
      owed: -debts.reduce((sum, { balance }) => sum + balance, 0),
    },
  };
}

/** Every table as text. */
async function readTables(db: Database, isPostgres: boolean): Promise<Text[]> {
  const tables = await db.all<{ name: string }>(
    isPostgres
      ? "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public'"
      : "SELECT name FROM sqlite_master WHERE type = 'table'",
  );
  const texts: Text[] = [];
  for (const { name } of tables) {
    const rows = await db.all(`SELECT * FROM "${name}"`);
    texts.push({ where: `table ${name}`, text: JSON.stringify(rows), never: EVERYTHING });
  }
  return texts;
}

async function holdsIn(redis: Bun.RedisClient): Promise<string[]> {
  const left: string[] = [];
  for (const name of (await redis.send("KEYS", ["gateway:*:hold:*"])) as string[])
    for (const field of (await redis.send("HKEYS", [name])) as string[]) {
      const instances = name.replace(/:hold:.*/, ":instances");
      const untilMs = await redis.send("HGET", [instances, field]);
      if (untilMs !== null && Number(untilMs) > Date.now())
        left.push(`${name} by ${field}: ${await redis.send("HGET", [name, field])}`);
    }
  return left;
}

/** What living instances hold there, once they have had time to tell it that they hold nothing. */
async function readHolds(world: World): Promise<string[]> {
  if (!world.redis) return [];
  const redis = new Bun.RedisClient(world.redis.server.url);
  try {
    let left: string[] = [];
    const isEmpty = async () => {
      left = await holdsIn(redis);
      return left.length === 0;
    };
    await until("Redis has no hold", isEmpty, RELEASED_WITHIN_MS).catch(() => {});
    return left;
  } finally {
    redis.close();
  }
}

/** Collects what a run left behind, once its clients have stopped and every fault is over. */
export async function gather(world: World): Promise<Evidence> {
  await quiesce(world.instances);
  const instances = await restOf(world);
  const sharedHolds = await readHolds(world);
  const { dir, database } = world.options;
  const db = await openDatabase(world.storage);
  try {
    const [clients, upstreams, faults] = await Promise.all([
      readRecords<ClientRecord>(dir, "clients"),
      readRecords<JournalRecord>(dir, "upstreams"),
      readRecords<FaultRecord>(dir, "faults"),
    ]);
    const texts = await readTables(db, database === "postgres");
    for (let i = 0; i < world.instances.length; i++)
      texts.push({ where: `log of instance ${i}`, text: world.log(i), never: EVERYTHING });
    texts.push({ where: "log of the node", text: world.nodeLog(), never: EVERYTHING });
    return {
      clients,
      upstreams,
      faults,
      books: await readBooks(db, world),
      instances,
      sharedHolds,
      texts,
      // Last: its requests are not written down.
      told: await readTold(world),
      canaries: world.canaries,
    };
  } finally {
    await db.close();
  }
}
