import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freshDatabase, openDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { Config } from "../../src/config.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { type Log, silentLog } from "../../src/kernel/log.ts";

/** A clock that knows which of its timers still run. */
function watchedClock() {
  const running = new Set<symbol>();
  const watch = (begin: (task: () => void) => () => void, task: () => void, isOnce: boolean) => {
    const timer = Symbol();
    running.add(timer);
    const end = begin(() => {
      if (isOnce) running.delete(timer);
      task();
    });
    return () => {
      running.delete(timer);
      end();
    };
  };
  const clock: Clock = {
    now: () => systemClock.now(),
    elapsed: () => systemClock.elapsed(),
    after: (delayMs, task) => watch((run) => systemClock.after(delayMs, run), task, true),
    every: (periodMs, task) => watch((run) => systemClock.every(periodMs, run), task, false),
  };
  return { clock, running };
}

/** A log that notes what opens and closes, and fails the start where it is told to. */
function lifeLog(failAt?: string) {
  const opened: string[] = [];
  const closed: string[] = [];
  const log: Log = {
    ...silentLog,
    debug(message, fields) {
      const part = String(fields?.part);
      if (message === "closed") closed.push(part);
      if (message !== "opened") return;
      opened.push(part);
      if (part === failAt) throw new Error(`no more after ${part}`);
    },
    with: () => log,
  };
  return { log, opened, closed };
}

const FDS = "/proc/self/fd";
const hasFds = existsSync(FDS);

/** Files, sockets and pipes that this process has open, by kind; the numbers of sockets say nothing. */
function openFiles(): string[] {
  if (!hasFds) return [];
  return readdirSync(FDS)
    .flatMap((fd) => {
      try {
        return [readlinkSync(join(FDS, fd))];
      } catch {
        return [];
      }
    })
    .filter((target) => !target.includes("/proc/"))
    .map((target) => target.replace(/\[\d+\]$/, ""))
    .sort();
}

const kinds = {
  alone: true,
  "on Postgres and Redis": Boolean(process.env.TEST_POSTGRES_URL && process.env.TEST_REDIS_URL),
};

for (const [kind, isHere] of Object.entries(kinds)) {
  describe.skipIf(!isHere)(`the life of a service ${kind}`, () => {
    let config: Partial<Config>;
    let dataDir: string;
    let openBefore: number;
    let parts: string[];
    let drop: () => Promise<void>;

    const boot = (log: Log, clock: Clock = systemClock, more: Partial<Config> = {}) =>
      bootGateway({ dataDir, config: { ...config, ...more }, overrides: { log, clock }, deployment: null });

    /** The start fails, and leaves nothing that runs or is open. */
    async function failsCleanly(failing: { log?: Log; config?: Partial<Config> }): Promise<Error> {
      const { clock, running } = watchedClock();
      const openHere = openFiles().length;
      const error = await boot(failing.log ?? silentLog, clock, failing.config).then(
        async (gateway) => {
          await gateway.stop();
          throw new Error("it started");
        },
        (reason: Error) => reason,
      );
      expect(running.size).toBe(0);
      await until("every file and socket is closed", () => openFiles().length <= openHere);
      return error;
    }

    beforeAll(async () => {
      const database = await freshDatabase(kind === "alone" ? "sqlite" : "postgres");
      ({ drop } = database);
      dataDir = database.options.dataDir;
      const pricingFile = join(dataDir, "prices.json");
      writeFileSync(pricingFile, JSON.stringify({ prices: [{ match: "m", input: 1, output: 1 }] }));
      config = {
        ...database.options,
        redisUrl: kind === "alone" ? null : process.env.TEST_REDIS_URL!,
        pricingFile,
        otlpEndpoint: "http://127.0.0.1:9",
        memoryUrl: "ws://127.0.0.1:9",
      };
      // Once for what the runtime opens for good.
      await (await boot(silentLog)).stop();
      openBefore = openFiles().length;
      const { log, opened } = lifeLog();
      await (await boot(log)).stop();
      parts = opened;
    });
    afterAll(() => drop());

    test("everything is closed in the reverse order of its start, and no timer goes on", async () => {
      const { log, opened, closed } = lifeLog();
      const { clock, running } = watchedClock();
      const gateway = await boot(log, clock);
      expect(running.size).toBeGreaterThan(0);
      await gateway.stop();
      expect(opened[0]).toBe("database");
      expect(opened.at(-1)).toBe("listener");
      expect(closed).toEqual(opened.toReversed());
      expect(running.size).toBe(0);
      await until("every file and socket is closed", () => openFiles().length <= openBefore);
    });

    test("a drain closes the same, in the same order", async () => {
      const { log, opened, closed } = lifeLog();
      const { clock, running } = watchedClock();
      const gateway = await boot(log, clock, { drainGraceMs: 0 });
      await gateway.app.drain();
      expect(closed).toEqual(opened.toReversed());
      expect(running.size).toBe(0);
    });

    test("a start that fails after any step closes what was open, and nothing else", async () => {
      expect(parts.length).toBeGreaterThan(20);
      for (const part of parts) {
        const { log, opened, closed } = lifeLog(part);
        const error = await failsCleanly({ log });
        expect(error.message).toBe(`no more after ${part}`);
        expect(opened.at(-1)).toBe(part);
        expect(closed).toEqual(opened.toReversed());
      }
      // What failed so often does not stand in the way of the next start.
      await (await boot(silentLog)).stop();
    });

    test("a taken port, a broken price list, a journal without a folder and missing tiers leak nothing", async () => {
      const other = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
      expect((await failsCleanly({ config: { port: other.port } })) as { code?: string }).toMatchObject({
        code: "EADDRINUSE",
      });
      other.stop();

      const broken = join(dataDir, "broken.json");
      writeFileSync(broken, "{");
      expect((await failsCleanly({ config: { pricingFile: broken } })).message).toContain("broken.json");

      // The folder of the journal is a file here.
      const elsewhere = mkdtempSync(join(tmpdir(), "gateway-life-"));
      mkdirSync(join(elsewhere, "data"));
      writeFileSync(join(elsewhere, "data", "journal"), "");
      const error = await failsCleanly({ config: { dataDir: join(elsewhere, "data") } });
      expect(error.message).toContain("journal");
      rmSync(elsewhere, { recursive: true });

      const { dataDir: at = "", databaseUrl = null } = config;
      const rename = async (from: string, to: string) => {
        const db = await openDatabase({ dataDir: at, databaseUrl });
        await db.run("UPDATE billing_tiers SET name = $1 WHERE name = $2", [to, from]);
        await db.close();
      };
      await rename("free", "gone");
      expect((await failsCleanly({})).message).toContain("billing_tiers");
      await rename("gone", "free");
    });
  });
}
