/**
 * `npm run bench:months [-- --rows 10000000]`: a grown table of usage rows becomes one by month while others insert,
 * and a month is dropped while others insert. How long did an insert wait at most? On a Postgres of its own.
 */
import "../scripts/lib/help.ts";
import { startServices } from "@model-gateway/testing/services.ts";
import type { Database } from "../packages/gateway/src/storage/contract.ts";
import { openDatabase } from "../packages/gateway/src/storage/index.ts";
import { migrate } from "../packages/gateway/src/storage/migrate.ts";
import { migrations } from "../packages/gateway/src/storage/migrations/index.ts";
import { parseArgs } from "../scripts/lib/args.ts";

const USAGE_MONTHS = 24;
const INSERTERS = 4;
const MONTH_MS = 30 * 86_400_000;

const COLUMNS = `usage_records (id, user_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens,
  cost, created_at, created_ms, estimated)`;

/** Rows of the last six months, in the order of time. */
async function seed(db: Database, rows: number): Promise<void> {
  const PER_STATEMENT = 500_000;
  const nowMs = Date.now();
  for (let from = 0; from < rows; from += PER_STATEMENT) {
    const to = Math.min(rows, from + PER_STATEMENT);
    await db.run(
      `INSERT INTO ${COLUMNS}
       SELECT (lpad(to_hex(ms), 12, '0') || '7000' || lpad(to_hex(n), 16, '8'))::uuid, ('00000000-0000-4000-8000-' || lpad(to_hex(n % 1000), 12, '0'))::uuid, 'key-' || n % 800,
         'gpt-4o-mini', 'gateway', 400, 300, 700, 0.0002, to_timestamp(ms / 1000.0), ms, FALSE
       FROM (SELECT n, ($1 + n * $2)::bigint AS ms FROM generate_series($3::bigint, $4::bigint) AS n) AS rows`,
      [nowMs - 6 * MONTH_MS, (6 * MONTH_MS) / rows, from, to - 1],
    );
  }
  await db.run("ANALYZE usage_records");
}

/** Rows that are inserted one after the other, as instances of the service do; the longest wait since it was asked. */
class Inserters {
  #isOn = true;
  #longestMs = 0;
  written = 0;
  readonly #done: Promise<void>[];

  constructor(readonly db: Database) {
    this.#done = Array.from({ length: INSERTERS }, () => this.#insert());
  }

  async #insert(): Promise<void> {
    while (this.#isOn) {
      const nowMs = Date.now();
      const begunMs = performance.now();
      await this.db.run(
        `INSERT INTO ${COLUMNS} VALUES ($1, $2, 'key-1', 'gpt-4o-mini', 'gateway', 1, 1, 2, 0, $3, $4, FALSE)`,
        [Bun.randomUUIDv7(), crypto.randomUUID(), new Date(nowMs).toISOString(), nowMs],
      );
      this.#longestMs = Math.max(this.#longestMs, performance.now() - begunMs);
      this.written++;
    }
  }

  takeLongestMs(): number {
    const longest = this.#longestMs;
    this.#longestMs = 0;
    return longest;
  }

  async stop(): Promise<void> {
    this.#isOn = false;
    await Promise.all(this.#done);
  }
}

export interface MonthFigures {
  rows: number;
  /** Rows that were inserted while all this went on, each of which is there afterwards. */
  inserted: number;
  /** The longest wait of an insert before anything changes, while the table is split, and while it is dropped. */
  longestMs: { before: number; split: number; drop: number };
  splitMs: number;
  dropMs: number;
}

/** On a new database of the server; `calmMs`: how long inserts are watched before anything changes. */
export async function splitGrownTable(
  server: string,
  { rows, calmMs }: { rows: number; calmMs: number },
): Promise<MonthFigures> {
  const name = `months_${crypto.randomUUID().replaceAll("-", "")}`;
  const admin = new Bun.SQL(server, { max: 1 });
  await admin.unsafe(`CREATE DATABASE ${name}`);
  const databaseUrl = Object.assign(new URL(server), { pathname: `/${name}` }).href;
  const db = await openDatabase({ dataDir: "", databaseUrl });
  try {
    await migrate(
      db,
      migrations.filter(({ id }) => id < USAGE_MONTHS),
    );
    await seed(db, rows);
    const inserters = new Inserters(db);
    await Bun.sleep(calmMs);
    const before = inserters.takeLongestMs();
    const splitMs = await timed(async () => {
      await migrate(db);
      await db.rollMonths({ nowMs: Date.now(), keptFromMs: null });
    });
    const whileSplit = inserters.takeLongestMs();
    await inserters.stop();
    const inserted = inserters.written;
    const count = await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM usage_records");
    const found = count!.n - rows;
    if (found !== inserted) throw new Error(`${inserted} rows were inserted and ${found} are there`);
    // The old rows are no longer kept: their table goes whole.
    const nowMs = Date.now();
    const others = new Inserters(db);
    const dropMs = await timed(() => db.rollMonths({ nowMs, keptFromMs: nowMs + 3 * MONTH_MS }));
    await others.stop();
    return {
      rows,
      inserted,
      longestMs: { before, split: whileSplit, drop: others.takeLongestMs() },
      splitMs,
      dropMs,
    };
  } finally {
    await db.close();
    await admin.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.close();
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const begunMs = performance.now();
  await work();
  return performance.now() - begunMs;
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { rows: { type: "string", default: "10000000" } } });
  const services = await startServices();
  const server = services.env.TEST_POSTGRES_URL;
  if (!server) throw new Error(`it needs a Postgres: ${services.missing.join(", ")}`);
  try {
    const figures = await splitGrownTable(server, { rows: Number(values.rows), calmMs: 5_000 });
    const { longestMs, splitMs, dropMs, inserted } = figures;
    const ms = (value: number) => `${Math.round(value).toLocaleString("en")} ms`;
    console.log(
      `${figures.rows.toLocaleString("en")} rows, and ${inserted.toLocaleString("en")} inserted meanwhile`,
    );
    console.log(`split by month in ${ms(splitMs)}; dropped in ${ms(dropMs)}`);
    console.log(
      `longest wait of an insert: ${ms(longestMs.before)} before, ${ms(longestMs.split)} while it was split, ${ms(longestMs.drop)} while it was dropped`,
    );
  } finally {
    services.stop();
  }
}
