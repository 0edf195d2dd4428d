import { readdirSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/kernel/clock.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { openStorage, type StorageOptions } from "../../src/storage/index.ts";
import type { WorkerOptions } from "./kill-worker.ts";
import { openBench, payer } from "./support.ts";

const START_DEADLINE_MS = 30_000;
const REPLAY_DEADLINE_MS = 60_000;
const POOL_POINTS = 1_000_000;
const SMALL_POOL_POINTS = 500;
/** What the pool gets after each kill whose members have no quota to fall back on, and so run into debt. */
const POINTS_A_CYCLE = 20;

export interface KillReport {
  cycles: number;
  answered: number;
  rows: number;
  /** What is wrong, in words; empty when all is well. */
  problems: string[];
}

/** Runs one worker until it is killed at a random moment; the ids that it had answered by then. */
async function killOne(options: WorkerOptions): Promise<string[]> {
  const worker = Bun.spawn(
    [process.execPath, join(import.meta.dir, "kill-worker.ts"), JSON.stringify(options)],
    {
      stdout: "pipe",
      stderr: "inherit",
    },
  );
  const kill = () => worker.kill("SIGKILL");
  // Now and then it dies before it has answered anything, while it still reads what its forerunner left.
  const early = Math.random() < 0.25;
  let timer = setTimeout(kill, early ? 50 + Math.random() * 250 : START_DEADLINE_MS);
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of worker.stdout) {
    if (text === "" && !early) {
      clearTimeout(timer);
      timer = setTimeout(kill, Math.random() * 150);
    }
    text += decoder.decode(chunk, { stream: true });
  }
  clearTimeout(timer);
  await worker.exited;
  // An id without its newline was cut off by the kill, like a reply without its last byte.
  return text.split("\n").slice(0, -1);
}

/** Kills the service's metering under load again and again, then looks for anything lost or doubled. */
export async function killCycles(storage: StorageOptions, cycles: number): Promise<KillReport> {
  const answered: string[] = [];
  const groups = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()] as const;
  const payers = [
    payer({ groupId: groups[0], tier: "enterprise" }),
    payer({ groupId: groups[1], tier: "enterprise", costMultiplierMicros: 1_250_000 }),
    payer({ tier: "enterprise" }),
    payer({ tier: "free" }),
    payer({ groupId: groups[2], tier: "free" }),
    payer({ groupId: groups[2], tier: "free", costMultiplierMicros: 1_300_000 }),
  ];
  const db = await openStorage(storage);
  const first = await openBench({ db, dataDir: storage.dataDir, clock: systemClock });
  await first.topup({ type: "group", id: groups[0] }, POOL_POINTS);
  await first.topup({ type: "group", id: groups[1] }, SMALL_POOL_POINTS);
  await first.close();
  for (let cycle = 0; cycle < cycles; cycle++) {
    // Every fourth time two processes share the database and the directory.
    const workers = cycle % 4 === 3 ? 2 : 1;
    const ids = await Promise.all(Array.from({ length: workers }, () => killOne({ storage, payers })));
    answered.push(...ids.flat());
    // The books are open to others between two runs: this pays debts first.
    await first.topup({ type: "group", id: groups[2] }, POINTS_A_CYCLE);
  }

  const bench = await openBench({ db, dataDir: storage.dataDir, clock: systemClock });
  const problems: string[] = [];
  const deadline = Date.now() + REPLAY_DEADLINE_MS;
  while (bench.metering.figures.bytes > 0 && Date.now() < deadline) await Bun.sleep(20);
  const rows = await bench.rows();
  const ids = new Set(rows.map(({ id }) => id));
  const lost = answered.filter((id) => !ids.has(id));
  if (lost.length > 0) problems.push(`${lost.length} answered requests have no row, e.g. ${lost[0]}`);
  if (ids.size !== rows.length) problems.push(`${rows.length - ids.size} rows are doubled`);
  const books = await verifyLedger(db);
  problems.push(...books.problems.map((problem) => JSON.stringify(problem)));

  const points = rows.reduce((sum, row) => sum + (row.points ?? 0), 0);
  const balances = await Promise.all(
    groups.map(async (id) => (await bench.ledger.statement({ type: "group", id })).balance),
  );
  // Rows that nothing covered are settled in points that are owed.
  const accounted = points + balances.reduce((sum, balance) => sum + balance, 0) - books.debts.points;
  const issued = POOL_POINTS + SMALL_POOL_POINTS + POINTS_A_CYCLE * cycles;
  if (accounted !== issued) problems.push(`${accounted} points are accounted for, not ${issued}`);
  const { totals } = await bench.usage.query({});
  if (totals.requests !== rows.length)
    problems.push(`the rollups count ${totals.requests} of ${rows.length} rows`);
  await bench.close();
  const left = readdirSync(join(storage.dataDir, "journal"));
  if (left.some((name) => name.endsWith(".jsonl")))
    problems.push(`the journal is not empty: ${left.join(", ")}`);
  await db.close();
  return { cycles, answered: answered.length, rows: rows.length, problems };
}
