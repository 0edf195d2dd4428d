import { tmpdir } from "node:os";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRedis } from "@model-gateway/testing/services.ts";
import type { AppOverrides } from "../../src/app/index.ts";

/** Whether the machine has what several instances need. */
export const canShare =
  process.env.TEST_REDIS_URL !== undefined && process.env.TEST_POSTGRES_URL !== undefined;

export interface PairOptions {
  redisUrl?: string;
  overrides?: AppOverrides;
}

export interface Pair {
  a: TestGateway;
  b: TestGateway;
  databaseUrl: string;
  stop(): Promise<void>;
}

/** Two instances of the service over one Postgres database and one Redis. */
export async function bootPair({
  redisUrl = process.env.TEST_REDIS_URL!,
  overrides,
}: PairOptions = {}): Promise<Pair> {
  const { options, drop } = await freshDatabase("postgres");
  const config = {
    databaseUrl: options.databaseUrl,
    redisUrl,
    jwtSecret: "a secret that both instances share, long",
  };
  const [a, b] = await Promise.all([bootGateway({ config, overrides }), bootGateway({ config, overrides })]);
  return {
    a,
    b,
    databaseUrl: options.databaseUrl!,
    async stop() {
      await a.stop();
      await b.stop();
      await drop();
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
