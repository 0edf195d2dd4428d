import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import type { AppOverrides } from "../../src/app.ts";
import { freshDatabase } from "../support/databases.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "../support/gateway.ts";

/** Whether the machine has what several instances need. */
export const canShare =
  process.env.TEST_REDIS_URL !== undefined && process.env.TEST_POSTGRES_URL !== undefined;

export async function until(ready: () => boolean | Promise<boolean>, timeoutMs = 20_000): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; !(await ready()); await Bun.sleep(10))
    if (Date.now() > deadline) throw new Error("did not happen in time");
}

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

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** A Redis server that may be ended and started again without harm to other tests. */
export async function startRedis(): Promise<OwnRedis> {
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  let child: ChildProcess;
  const redis: OwnRedis = {
    url,
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    },
    async start() {
      const options = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
      child = spawn("redis-server", options, { stdio: "ignore" });
      await until(async () => {
        const client = new Bun.RedisClient(url, { autoReconnect: false });
        try {
          return (await client.send("PING", [])) === "PONG";
        } catch {
          return false;
        } finally {
          client.close();
        }
      });
    },
  };
  await redis.start();
  return redis;
}
