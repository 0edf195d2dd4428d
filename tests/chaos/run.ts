import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { check, type Problem } from "./checker.ts";
import { Clients } from "./clients.ts";
import { type Evidence, gather } from "./evidence.ts";
import { inflict } from "./faults.ts";
import { type ClientRecord, type FaultRecord, FILES, Recorder } from "./records.ts";
import { type Fault, type Pace, schedule, type Targets } from "./schedule.ts";
import { World, type WorldOptions } from "./world.ts";

/** Faults that the seed decides, on processes and on the network at the same time. */
export interface Random {
  /** No further fault begins after this time. */
  durationMs: number;
  /** Nor after this many faults on processes. */
  faultsMax: number;
  pace: Pace;
}

export interface ChaosOptions extends Omit<WorldOptions, "dir"> {
  /** Or these, one after the other. */
  faults: Random | readonly Fault[];
  /** Clients that ask at once. */
  lanes: number;
  /** Keep what was recorded, and where. */
  keep: boolean;
  say: (line: string) => void;
}

export interface ChaosReport {
  problems: Problem[];
  operations: { ok: number; fail: number; unknown: number };
  refusals: Record<string, number>;
  rows: number;
  /** How often each fault happened, by kind and target. */
  faults: Record<string, number>;
  /** What this machine could not do. */
  missing: string[];
  instances: Evidence["instances"];
  /** Where the records are; null: they were removed. */
  dir: string | null;
}

/** Before anything happens to them, the processes have served this much. */
const WARM_OPERATIONS = 50;
const WARM_WITHIN_MS = 60_000;
const LOOK_EVERY_MS = 1_000;
const SAY_EVERY_MS = 10_000;

/** Load and faults until the time is up or the faults are used up; then everything is healed and looked at. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { seed, temper, lanes, keep, say } = options;
  const dir = mkdtempSync(join(keep ? process.cwd() : tmpdir(), "gateway-chaos-records-"));
  const world = await World.open({ ...options, dir });
  const records = new Recorder<ClientRecord>(join(dir, FILES.clients));
  const faultRecords = new Recorder<FaultRecord>(join(dir, FILES.faults));
  const { addresses, keys, canaries } = world;
  const clients = new Clients({ seed, temper, lanes, addresses, keys, canary: canaries.prompt, records });
  const counts: Record<string, number> = {};
  try {
    clients.start();
    await until("the first requests", () => clients.begun > WARM_OPERATIONS, WARM_WITHIN_MS);
    const note = (record: FaultRecord) => {
      const name = `${record.kind} ${record.target}`;
      counts[name] = (counts[name] ?? 0) + 1;
      faultRecords.write(record);
    };
    const timers = [
      setInterval(() => say(progress(clients, counts)), SAY_EVERY_MS),
      setInterval(() => world.noteMemory(), LOOK_EVERY_MS),
    ];
    try {
      const { faults } = options;
      if ("pace" in faults) await trouble(world, seed, faults, note);
      else for (const fault of faults) note(await inflict(world, fault));
    } finally {
      for (const timer of timers) clearInterval(timer);
    }
    await clients.stop();
    await Promise.all([records.end(), faultRecords.end(), world.journal.end()]);
    const evidence = await gather(world);
    return {
      problems: check(evidence),
      operations: clients.counts,
      refusals: Object.fromEntries(clients.refusals),
      rows: evidence.books.rows.length,
      faults: counts,
      missing: world.missing,
      instances: evidence.instances,
      dir: keep ? dir : null,
    };
  } finally {
    void clients.stop();
    await world.close();
    if (!keep) rmSync(dir, { recursive: true, force: true });
  }
}

function progress({ counts: { ok, fail, unknown } }: Clients, faults: Record<string, number>): string {
  const total = Object.values(faults).reduce((sum, count) => sum + count, 0);
  return `${ok} ok, ${fail} failed, ${unknown} unknown; ${total} faults`;
}

/** Two rows of faults at once: to processes, disks and clocks, and to the network between them. */
async function trouble(
  world: World,
  seed: number,
  { pace, durationMs, faultsMax }: Random,
  note: (record: FaultRecord) => void,
): Promise<void> {
  const untilMs = Date.now() + durationMs;
  let isOver = false;
  const lane = async (faults: Iterable<Fault>, isLast: (done: number) => boolean) => {
    let done = 0;
    for (const fault of faults) {
      if (isOver || Date.now() >= untilMs || isLast(done)) break;
      note(await inflict(world, fault));
      done++;
    }
  };
  const on = (number: number, targets: Targets) => schedule(seed + number, targets, pace);
  await Promise.all([
    lane(on(0, world.processTargets), (done) => done >= faultsMax).finally(() => {
      isOver = true;
    }),
    lane(on(1, world.lineTargets), () => false),
  ]);
}
