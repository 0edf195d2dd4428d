import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { Supervisor } from "../../src/app/workers/supervisor.ts";
import { REFUSED } from "../../src/bus/contract.ts";
import { openBus } from "../../src/bus/index.ts";
import { readConfig } from "../../src/config.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { createLog, type Log, silentLog } from "../../src/kernel/log.ts";

const READY = `process.send({ ready: { url: "http://here", port: 1, introduction: "hello" } });`;

/** Two workers that are this program. */
async function supervised(
  program: string,
  run: (supervisor: Supervisor, dataDir: string) => Promise<void>,
  log: Log = silentLog,
) {
  const dataDir = mkdtempSync(join(tmpdir(), "supervisor-"));
  try {
    const read = readConfig({ SERVICE_DATA_DIR: dataDir, SERVICE_WORKERS: "2" });
    if ("problems" in read) throw new Error(read.problems.join("\n"));
    const command = [process.execPath, "-e", program];
    const supervisor = await Supervisor.start({ config: read.config, log, command });
    try {
      await run(supervisor, dataDir);
    } finally {
      await supervisor.drain();
    }
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}

test("a worker that sends nonsense does not end its supervisor", async () => {
  const babbler = `
    for (const nonsense of [null, 5, "text", [], {}]) process.send(nonsense);
    process.on("message", (message) => {
      if (message.start) ${READY}
      if (message.drain) process.exit(0);
    });
  `;
  await supervised(babbler, async (supervisor) => {
    expect(supervisor).toMatchObject({ url: "http://here", introduction: "hello" });
  });
});

test("of two that died together the holds stay until both successors are ready: either may settle for both", async () => {
  /** Holds one of a pool and dies when it is told to. The first's successor is ready when the second's is there, that one when it is told to. */
  const holder = `
    const { existsSync, writeFileSync } = require("node:fs");
    const when = (file, run) => existsSync(file) ? run() : setTimeout(when, 10, file, run);
    process.on("message", async ({ start, drain }) => {
      if (drain) process.exit(0);
      if (!start) return;
      const { place: { number, starts, supervisor }, config: { dataDir } } = start;
      if (starts > 1 && number === 2) writeFileSync(dataDir + "/second", "");
      if (starts > 1) return when(dataDir + (number === 1 ? "/second" : "/settled"), () => { ${READY} });
      const body = Buffer.from(JSON.stringify([
        ["enter", 1, supervisor.worker, "holds of " + number, [{ name: "pool", base: { money: 1, tokens: 0 }, spent: null }]],
      ]));
      const header = Buffer.alloc(4);
      header.writeUInt32BE(body.length);
      const data = () => { ${READY} when(dataDir + "/die", () => process.exit(1)); };
      const socket = await Bun.connect({ unix: supervisor.path, socket: { data } });
      socket.write(Buffer.concat([header, body]));
    });
  `;
  const lines: string[] = [];
  const log = createLog({ level: "info", format: "json", write: (line) => lines.push(line) });
  const restarted = (worker: number) =>
    lines.some((line) => line.includes("started again") && line.includes(`"worker":${worker}`));
  await supervised(
    holder,
    async (_, dataDir) => {
      const observer = await openBus({
        redisUrl: null,
        supervisor: { path: join(dataDir, "workers.sock"), worker: "observer" },
        clock: systemClock,
        ids: randomIds,
        log: silentLog,
      });
      /** How many of a pool of two can be had. */
      const free = async (): Promise<number> => {
        const money = { fixed: { money: 0, tokens: 0 }, perUnit: { money: 1, tokens: 0 } };
        const limit = { money: 2, tokens: Number.POSITIVE_INFINITY };
        const spent = { money: 0, tokens: 0, version: 0 };
        const purses = [{ name: "pool", limit, spent, unitsBeyond: null }];
        const units = await observer.reservations.grant({
          ...money,
          purses,
          alsoOn: [],
          unitsMin: 1,
          unitsMax: 2,
        });
        if (units === REFUSED) return 0;
        observer.reservations.change([{ name: "pool", amount: { money: -units, tokens: 0 } }]);
        return units;
      };
      expect(await free()).toBe(0);
      writeFileSync(join(dataDir, "die"), "");
      await until("the first successor is ready", () => restarted(1));
      expect(existsSync(join(dataDir, "settled"))).toBe(false);
      expect(await free()).toBe(0);
      writeFileSync(join(dataDir, "settled"), "");
      await until("the second is ready, too", () => restarted(2));
      await until("the holds are freed", async () => (await free()) === 2);
      await observer.close();
    },
    log,
  );
});
