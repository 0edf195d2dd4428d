import { expect, test } from "bun:test";
import { freshDatabase, kinds } from "@model-gateway/testing/databases.ts";
import { killCycles } from "./kill-cycles.ts";

/** At least fifty over both databases; `npm run soak:kill` does as many as wanted. */
const CYCLES = { sqlite: 30, postgres: 25 };
const CYCLES_ALONE = 55;

test(
  "kill -9 at random moments loses no answered request, doubles none and keeps the points",
  async () => {
    // Side by side, because most of a cycle is waiting for a process to start.
    const reports = await Promise.all(
      kinds.map(async (kind) => {
        const { options, drop } = await freshDatabase(kind);
        try {
          return await killCycles(options, kinds.length === 1 ? CYCLES_ALONE : CYCLES[kind]);
        } finally {
          await drop();
        }
      }),
    );
    expect(reports.flatMap(({ problems }) => problems)).toEqual([]);
    expect(reports.reduce((sum, { cycles }) => sum + cycles, 0)).toBeGreaterThanOrEqual(50);
    for (const { answered, rows } of reports) {
      expect(answered).toBeGreaterThan(0);
      expect(rows).toBeGreaterThanOrEqual(answered);
    }
  },
  { timeout: 240_000 },
);
