import { type ChaosReport, runChaos } from "../run.ts";
import type { Fault } from "../schedule.ts";
import type { Outcome } from "./outcome.ts";

const LANES = 8;
const PAUSE_MS = 2_000;

/** Away, frozen and slow: each for so long, under load, one after the other. */
const OUTAGES = {
  Postgres: [
    { kind: "kill", target: "postgres" },
    { kind: "freeze", target: "postgres" },
    { kind: "slow", target: "line postgres" },
  ],
  Redis: [
    { kind: "kill", target: "redis" },
    { kind: "freeze", target: "redis" },
    { kind: "slow", target: "line redis" },
  ],
  disk: [{ kind: "fill", target: "disk 0" }],
} as const satisfies Record<string, readonly Pick<Fault, "kind" | "target">[]>;

export type Outage = keyof typeof OUTAGES;

interface OutagesOptions {
  of: Outage;
  seconds: number;
  times: number;
  database: "sqlite" | "postgres";
  instances: number;
  say: (line: string) => void;
}

/** Known keys go on being served, and when it is over every answered request has its row. */
export async function measureOutages(options: OutagesOptions): Promise<Outcome> {
  const { of, seconds, times, database, instances, say } = options;
  const lines: string[] = [];
  let isSound = true;
  for (const fault of OUTAGES[of]) {
    const faults = Array.from({ length: times }, () => ({
      ...fault,
      pauseMs: PAUSE_MS,
      holdMs: seconds * 1_000,
      byMs: 0,
    }));
    const report = await runChaos({
      database,
      instances,
      workers: 1,
      seed: 1,
      temper: "calm",
      lanes: LANES,
      faults,
      keep: false,
      say,
    });
    if (report.missing.length > 0) return { lines: report.missing, isSound: false };
    lines.push(`${fault.kind} ${fault.target}, ${times} × ${seconds} s on ${database}: ${told(report)}`);
    isSound &&= report.problems.length === 0 && report.operations.fail + report.operations.unknown === 0;
  }
  return { lines, isSound };
}

function told({ operations: { ok, fail, unknown }, rows, refusals, problems }: ChaosReport): string {
  const wrong = problems.slice(0, 5).map(({ rule, message }) => `\n  ${rule}: ${message}`);
  const failures =
    fail + unknown === 0 ? "none failed" : `${fail + unknown} failed ${JSON.stringify(refusals)}`;
  return `${ok} answered, ${failures}, ${rows} rows, ${problems.length} problems${wrong.join("")}`;
}
