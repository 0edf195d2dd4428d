/**
 * Usage rows by month: Postgres keeps each month in a table of its own (a partition of `usage_records`), so that an
 * old month is dropped whole. Rows whose month has no table yet are in `usage_records_other`, so that an insert never
 * fails for want of one.
 */
import type { Database, Queryable, Transaction } from "../contract.ts";

const TABLE = "usage_records";
const OTHER = `${TABLE}_other`;
/** What was there before rows were kept by month, and the month in which its rows end. */
const BEFORE = `${TABLE}_until`;
const INDEXES = {
  time: "(created_at, api_key_id, model)",
  person: "(user_id, created_ms, project)",
  ref: "(ref_id, created_at) WHERE ref_id IS NOT NULL",
};
const BOUND = `${TABLE}_bound`;
/** The months after this one that have their table in advance. */
const MONTHS_AHEAD = 1;
/** A clock that is further off than this is wrong. */
const CLOCKS_DIFFER_MS_MAX = 2 * 86_400_000;

/**
 * A statement that changes a table waits for those that use it, and all later ones wait for it. So it waits only
 * briefly, lets the others pass and tries again.
 */
const LOCK_WAIT_MS = 200;
const LOCK_PAUSE_MS = 300;
/** A migration goes on for a minute; a month that cannot be made now is tried again by housekeeping. */
const LOCK_TRIES_MAX = { migration: 200, months: 10 };
const MONTHS_LOCK = "usage months";

const startOf = (ms: number, monthsLater = 0): number => {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + monthsLater, 1);
};
const suffix = (ms: number): string => new Date(ms).toISOString().slice(0, 7).replace("-", "_");
const literal = (ms: number): string => `'${new Date(ms).toISOString()}'`;

interface Part {
  name: string;
  /** No row is of this instant or later. */
  endMs: number;
}

const PART_NAME = new RegExp(`^${TABLE}_(until_)?(\\d{4})_(\\d{2})$`);

function partOf(name: string): Part | null {
  const [, until, year, month] = PART_NAME.exec(name) ?? [];
  if (!year) return null;
  const startMs = Date.UTC(Number(year), Number(month) - 1, 1);
  return { name, endMs: until ? startMs : startOf(startMs, 1) };
}

/** The months that have a table; what holds the rest is not among them. */
async function parts(on: Queryable): Promise<Part[]> {
  const rows = await on.all<{ name: string }>(
    `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass($1)`,
    [TABLE],
  );
  return rows.map(({ name }) => partOf(name)).filter((part) => part !== null);
}

const isLockTimeout = (error: unknown) => (error as { errno?: unknown } | null)?.errno === "55P03";

/** Runs `work` in a transaction, again and again until it gets its locks without keeping others waiting for long. */
async function briefly<T>(db: Database, triesMax: number, work: (tx: Transaction) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await db.transaction(async (tx) => {
        await tx.lock(MONTHS_LOCK);
        await tx.run(`SET LOCAL lock_timeout = ${LOCK_WAIT_MS}`);
        return work(tx);
      });
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      if (tries === triesMax)
        throw new Error(
          `${TABLE} is in use without a pause: end the long transaction that holds it (pg_stat_activity shows it)`,
          { cause: error },
        );
      await Bun.sleep(LOCK_PAUSE_MS * (0.5 + Math.random()));
    }
  }
}

async function makeMonth(tx: Transaction, startMs: number): Promise<void> {
  const endMs = startOf(startMs, 1);
  // Asked again under the lock: another instance may have been faster.
  if ((await parts(tx)).some((part) => part.endMs === endMs)) return;
  const name = `${TABLE}_${suffix(startMs)}`;
  const period = `created_at >= ${literal(startMs)} AND created_at < ${literal(endMs)}`;
  await tx.run(
    `CREATE TABLE ${name} (LIKE ${TABLE} INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (id))`,
  );
  await tx.run(`LOCK TABLE ${OTHER} IN ACCESS EXCLUSIVE MODE`);
  await tx.run(
    `WITH moved AS (DELETE FROM ${OTHER} WHERE ${period} RETURNING *) INSERT INTO ${name} SELECT * FROM moved`,
  );
  await tx.run(
    `ALTER TABLE ${TABLE} ATTACH PARTITION ${name} FOR VALUES FROM (${literal(startMs)}) TO (${literal(endMs)})`,
  );
}

/** Makes the tables of this month and the next ones, and drops those that end at `keptFromMs` or before. */
export async function rollMonths(
  db: Database,
  { nowMs, keptFromMs }: { nowMs: number; keptFromMs: number | null },
): Promise<void> {
  const known = await parts(db);
  const beforeEndMs = known.find(({ name }) => name.startsWith(BEFORE))?.endMs ?? 0;
  for (let ahead = 0; ahead <= MONTHS_AHEAD; ahead++) {
    const startMs = startOf(nowMs, ahead);
    const isKnown = startMs < beforeEndMs || known.some(({ endMs }) => endMs === startOf(startMs, 1));
    if (!isKnown) await briefly(db, LOCK_TRIES_MAX.months, (tx) => makeMonth(tx, startMs));
  }
  if (keptFromMs === null) return;
  const droppedMs = Math.min(keptFromMs, keptFromMs + (await clockLagMs(db, nowMs)));
  for (const { name, endMs } of known)
    if (endMs <= droppedMs)
      await briefly(db, LOCK_TRIES_MAX.months, (tx) => tx.run(`DROP TABLE IF EXISTS ${name}`));
}

/**
 * How far the database's clock is behind this one, as a negative number; 0 where they agree. Nothing brings back a
 * month that was dropped because a machine believed in a wrong year.
 */
async function clockLagMs(db: Database, nowMs: number): Promise<number> {
  const row = await db.get<{ now: string }>("SELECT now() AS now");
  const lagMs = Date.parse(row!.now) - nowMs;
  return lagMs < -CLOCKS_DIFFER_MS_MAX ? lagMs : 0;
}

/**
 * Makes `usage_records` a table by month while others read and write it. The rows that are there stay where they are:
 * their table becomes the part of all months up to a bound. An attempt that was cut off is begun again.
 */
export async function splitUsage(db: Database, nowMs = Date.now()): Promise<void> {
  const isSplit = () =>
    db.get("SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass($1)", [TABLE]);
  if (await isSplit()) return;
  // A new service has every month in its own table from the beginning.
  const done = await briefly(db, LOCK_TRIES_MAX.migration, async (tx) => {
    await lockTable(tx);
    if (await tx.get(`SELECT 1 FROM ${TABLE} LIMIT 1`)) return false;
    await swap(tx, startOf(nowMs));
    return true;
  });
  if (done) return;
  const newest = await db.get<{ at: string }>(`SELECT MAX(created_at) AS at FROM ${TABLE}`);
  const endMs = startOf(Math.max(nowMs + CLOCKS_DIFFER_MS_MAX, Date.parse(newest!.at)), 1);
  // With a proven constraint the table becomes a part without being read under the lock.
  await briefly(db, LOCK_TRIES_MAX.migration, async (tx) => {
    await lockTable(tx);
    await tx.run(`ALTER TABLE ${TABLE} DROP CONSTRAINT IF EXISTS ${BOUND}`);
    await tx.run(
      `ALTER TABLE ${TABLE} ADD CONSTRAINT ${BOUND} CHECK (created_at < ${literal(endMs)}) NOT VALID`,
    );
  });
  await db.run(`ALTER TABLE ${TABLE} VALIDATE CONSTRAINT ${BOUND}`);
  await briefly(db, LOCK_TRIES_MAX.migration, async (tx) => {
    await lockTable(tx);
    await swap(tx, endMs);
  });
}

const lockTable = (tx: Transaction) => tx.run(`LOCK TABLE ${TABLE} IN ACCESS EXCLUSIVE MODE`);

/** Puts a table by month in the place of the one that is there, which becomes the part up to `endMs`. */
async function swap(tx: Transaction, endMs: number): Promise<void> {
  const before = `${BEFORE}_${suffix(endMs)}`;
  await tx.run(`ALTER TABLE ${TABLE} RENAME TO ${before}`);
  for (const index of ["pkey", ...Object.keys(INDEXES)])
    await tx.run(`ALTER INDEX ${TABLE}_${index} RENAME TO ${before}_${index}`);
  await tx.run(
    `CREATE TABLE ${TABLE} (LIKE ${before} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (created_at)`,
  );
  await tx.run(`ALTER TABLE ${TABLE} DROP CONSTRAINT IF EXISTS ${BOUND}`);
  // Indexes of the same definition that a part has already are taken over.
  for (const [name, on] of Object.entries(INDEXES))
    await tx.run(`CREATE INDEX ${TABLE}_${name} ON ${TABLE} ${on}`);
  await tx.run(
    `ALTER TABLE ${TABLE} ATTACH PARTITION ${before} FOR VALUES FROM (MINVALUE) TO (${literal(endMs)})`,
  );
  await tx.run(`ALTER TABLE ${before} DROP CONSTRAINT IF EXISTS ${BOUND}`);
  await tx.run(`CREATE TABLE ${OTHER} PARTITION OF ${TABLE} (PRIMARY KEY (id)) DEFAULT`);
}
