import { expect, test } from "bun:test";
import { runChaos } from "./run.ts";

const SEED_MAX = 2 ** 31 - 1;
/** So many faults on processes, one after the other, and on the network for as long as that takes. */
const FAULTS = 8;
const FAULTS_WITHIN_MS = 120_000;
const TEST_WITHIN_MS = 240_000;

test(
  "one process on SQLite, killed, frozen, cut off, out of disk and of time: everything that was written down agrees",
  async () => {
    const seed = Math.floor(Math.random() * SEED_MAX);
    const { problems, operations, rows, faults, missing } = await runChaos({
      database: "sqlite",
      instances: 1,
      workers: 1,
      seed,
      temper: "wild",
      lanes: 8,
      faults: {
        durationMs: FAULTS_WITHIN_MS,
        faultsMax: FAULTS,
        pace: { pauseMsMax: 500, holdMsMax: 1_500 },
      },
      keep: false,
      say: () => {},
    });
    console.log(`chaos, seed ${seed}: ${JSON.stringify({ ...operations, rows, faults, missing })}`);
    const how = `npm run chaos -- --seed ${seed}`;
    expect(problems.map(({ rule, message }) => `${rule}: ${message} (${how})`)).toEqual([]);
    // A run in which nothing was answered and nothing broke would prove nothing.
    expect(operations.ok).toBeGreaterThan(30);
    expect(Object.values(faults).reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(FAULTS);
  },
  TEST_WITHIN_MS,
);
