import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRedis } from "@model-gateway/testing/services.ts";
import type { AppOverrides } from "../../src/app/index.ts";
import { WorkerHub } from "../../src/bus/workers/hub.ts";
import type { Config } from "../../src/config.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { StorageOptions } from "../../src/storage/index.ts";

/** Whether the machine has what several instances need. */
export const canShare =
  process.env.TEST_REDIS_URL !== undefined && process.env.TEST_POSTGRES_URL !== undefined;

/** Instances that share one database, and their limits, holds and messages. */
export interface Company {
  storage: StorageOptions;
  boot(options?: { config?: Partial<Config>; overrides?: AppOverrides }): Promise<TestGateway>;
  /** After the instances. */
  stop(): Promise<void>;
}

export type Sharing = "over Redis" | "as workers";
/** The ways in which instances can share on this machine. */
export const sharings: readonly Sharing[] = canShare ? ["over Redis", "as workers"] : ["as workers"];

/** A Postgres and a Redis, or an embedded database and the socket of a supervisor. */
export function company(sharing: Sharing, redisUrl = process.env.TEST_REDIS_URL!): Promise<Company> {
  return sharing === "over Redis" ? overRedis(redisUrl) : asWorkers();
}

async function overRedis(redisUrl: string): Promise<Company> {
  const { options, drop } = await freshDatabase("postgres");
  const { databaseUrl } = options;
  const jwtSecret = "a secret that all instances share, long";
  return {
    storage: options,
    boot: ({ config, overrides } = {}) =>
      bootGateway({ config: { databaseUrl, redisUrl, jwtSecret, ...config }, overrides }),
    stop: drop,
  };
}

async function asWorkers(): Promise<Company> {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-workers-"));
  const path = join(dataDir, "workers.sock");
  const hub = new WorkerHub({ path, clock: systemClock, log: silentLog });
  const service = crypto.randomUUID();
  let count = 0;
  return {
    storage: { dataDir, databaseUrl: null },
    boot({ config, overrides } = {}) {
      const supervisor = { path, worker: crypto.randomUUID() };
      const worker = { number: ++count, count: 3, starts: 1, service, supervisor };
      return bootGateway({ config, dataDir, overrides: { ...overrides, worker } });
    },
    async stop() {
      hub.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

export interface PairOptions {
  sharing?: Sharing;
  redisUrl?: string;
  overrides?: AppOverrides;
}

export interface Pair {
  a: TestGateway;
  b: TestGateway;
  storage: StorageOptions;
  stop(): Promise<void>;
}

export async function bootPair({
  sharing = "over Redis",
  redisUrl,
  overrides,
}: PairOptions = {}): Promise<Pair> {
  const { boot, storage, stop } = await company(sharing, redisUrl);
  const [a, b] = await Promise.all([boot({ overrides }), boot({ overrides })]);
  return {
    a,
    b,
    storage,
    async stop() {
      await a.stop();
      await b.stop();
      await stop();
    },
  };
}

export async function registerBackend(gateway: TestGateway, backend: Record<string, unknown>): Promise<void> {
  const response = await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify(backend),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
}

export interface OwnRedis {
  url: string;
  /** Ends the server at once; what it knew is lost. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** A Redis server that may be ended and started again without harm to other tests. */
export async function startOwnRedis(): Promise<OwnRedis> {
  let server = await startRedis(tmpdir());
  const { url, port } = server;
  return {
    url,
    async kill() {
      const { child } = server;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    },
    async start() {
      server = await startRedis(tmpdir(), port);
    },
  };
}
