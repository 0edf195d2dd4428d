/**
 * How long settling a request keeps rows locked that other instances want as well. Counted is processor time, of the
 * connection in Postgres and of the process that settles, which work by turns: others on the machine do not matter.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { settlerOn } from "../../packages/gateway/src/app/journal-thread/open.ts";
import { InProcessBus } from "../../packages/gateway/src/bus/in-process/bus.ts";
import { systemClock } from "../../packages/gateway/src/kernel/clock.ts";
import { randomIds } from "../../packages/gateway/src/kernel/ids.ts";
import { Ledger } from "../../packages/gateway/src/rooms/ledger/index.ts";
import { encodeEntry } from "../../packages/gateway/src/rooms/metering/journal/codec.ts";
import type { Database, Transaction } from "../../packages/gateway/src/storage/contract.ts";
import { openStorage } from "../../packages/gateway/src/storage/index.ts";
import { journalEntry } from "../../packages/gateway/tests/support/request-lines.ts";

const POINTS_PER_USD = 100;
const ROWS = 4_096;
const ROUNDS = 6;
const POOL = { type: "group", id: "00000000-0000-4000-8000-000000000001" } as const;

/** Milliseconds a request for which the pool's row and the account of spent points are locked. */
export interface LockTimes {
  poolMs: number;
  spentMs: number;
}

/** Settles batches as the service does, one at a time, on a new database in `server`. */
export async function measureLocks(server: string): Promise<LockTimes> {
  const name = `locks_${crypto.randomUUID().replaceAll("-", "")}`;
  const admin = new Bun.SQL(server, { max: 1 });
  await admin.unsafe(`CREATE DATABASE ${name}`);
  const databaseUrl = Object.assign(new URL(server), { pathname: `/${name}` }).href;
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-locks-"));
  const db = await openStorage({ dataDir, databaseUrl });
  try {
    const watched = watching(db);
    const settler = settlerOn(watched.db, POINTS_PER_USD);
    const options = { db, bus: new InProcessBus(), clock: systemClock, ids: randomIds };
    const ledger = new Ledger({ ...options, pointsPerUsd: POINTS_PER_USD });
    const order = { points: 10_000_000, note: null, actor: "bench" };
    await ledger.transaction((tx) => ledger.topup(tx, POOL, order));
    const rounds: LockTimes[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const file = join(dataDir, `${round}.jsonl`);
      const text = lines();
      writeFileSync(file, text);
      const end = Buffer.byteLength(text);
      await settler.settle({ file, start: 0, end, rowsMax: ROWS, mayExist: false, reserved: true });
      rounds.push(watched.taken());
    }
    const best = (of: (times: LockTimes) => number) => Math.min(...rounds.map(of)) / ROWS;
    return { poolMs: best(({ poolMs }) => poolMs), spentMs: best(({ spentMs }) => spentMs) };
  } finally {
    await db.close();
    await admin.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

function lines(): string {
  const userId = crypto.randomUUID();
  const entries = Array.from({ length: ROWS }, () =>
    encodeEntry(
      journalEntry({
        userId,
        keyId: userId,
        groupId: POOL.id,
        promptTokens: 400,
        completionTokens: 300,
        costNanoUsd: 10_000_000,
        atMs: Date.now(),
        hold: "points",
      }),
    ),
  );
  return entries.join("");
}

/** Nanoseconds that the process had a processor. */
const busyNs = (pid: number): number => Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]);

/** Milliseconds of processor time, of this process and of a connection in Postgres. */
function busyMs(backend: number): number {
  const { user, system } = process.cpuUsage();
  return busyNs(backend) / 1e6 + (user + system) / 1e3;
}

/** The database, which notes when a transaction first touches each of the two rows, and when it has committed. */
function watching(db: Database): { db: Database; taken(): LockTimes } {
  let times: LockTimes = { poolMs: 0, spentMs: 0 };
  const transaction: Database["transaction"] = async (work) => {
    let [backend, poolAtMs, spentAtMs] = [0, 0, 0];
    const note = (params: readonly unknown[] = []) => {
      if (params.includes(`group:${POOL.id}`)) poolAtMs ||= busyMs(backend);
      if (String(params[0]).startsWith("system:spent")) spentAtMs ||= busyMs(backend);
    };
    const result = await db.transaction(async (tx) => {
      backend = (await tx.get<{ pid: number }>("SELECT pg_backend_pid() AS pid"))!.pid;
      const noted: Transaction = {
        ...tx,
        all: (sql, params) => {
          note(params);
          return tx.all(sql, params);
        },
        get: (sql, params) => {
          note(params);
          return tx.get(sql, params);
        },
      };
      return work(noted);
    });
    const doneMs = busyMs(backend);
    times = { poolMs: doneMs - poolAtMs, spentMs: doneMs - spentAtMs };
    return result;
  };
  const wrapped = new Proxy(db, {
    get: (target, key) => {
      if (key === "transaction") return transaction;
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  return { db: wrapped, taken: () => times };
}
