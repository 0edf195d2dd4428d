import { expect, test } from "bun:test";
import { freshDatabase, kinds } from "@model-gateway/testing/databases.ts";
import { killCycles } from "./kill-cycles.ts";

/** `npm run soak:kill` does as many as wanted. */
const CYCLES = 12;

test(
  "kill -9 at random moments loses no answered request, doubles none and keeps the points",
  async () => {
    // Side by side, because most of a cycle is waiting for a process to start.
    const reports = await Promise.all(
      kinds.map(async (kind) => {
        const { options, drop } = await freshDatabase(kind);
        try {
          return await killCycles(options, CYCLES);
        } finally {
          await drop();
        }
      }),
    );
    expect(reports.flatMap(({ problems }) => problems)).toEqual([]);
    for (const { cycles, answered, rows } of reports) {
      expect(cycles).toBe(CYCLES);
      expect(answered).toBeGreaterThan(0);
      expect(rows).toBeGreaterThanOrEqual(answered);
    }
  },
  { timeout: 240_000 },
);
