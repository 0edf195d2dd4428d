import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
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
import { DEAR } from "../support/spending.ts";

/** Whether the machine has what several instances need. */
export const canShare =
  process.env.TEST_REDIS_URL !== undefined && process.env.TEST_POSTGRES_URL !== undefined;

interface BootOptions {
  config?: Partial<Config>;
  overrides?: AppOverrides;
  line?: SharedLine;
}

/** Instances that share one database, and their limits, holds and messages. */
export interface Company {
  storage: StorageOptions;
  boot(options?: BootOptions): Promise<TestGateway>;
  /** A way to what they share that can be interrupted for the instance that is booted with it. */
  line(): Promise<SharedLine>;
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
    boot({ config, overrides, line } = {}) {
      const url = line ? `redis://127.0.0.1:${line.port}` : redisUrl;
      return bootGateway({ config: { databaseUrl, redisUrl: url, jwtSecret, ...config }, overrides });
    },
    line: () => SharedLine.open({ host: "127.0.0.1", port: Number(new URL(redisUrl).port) }),
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
    boot({ config, overrides, line } = {}) {
      const supervisorPath = line?.path ?? path;
      const worker = { number: ++count, count: 3, starts: 1, service, supervisorPath };
      return bootGateway({ config, dataDir, overrides: { ...overrides, worker } });
    },
    line: () => SharedLine.open({ path }, join(dataDir, "line.sock")),
    async stop() {
      hub.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** Passes on what goes between one instance and what it shares with others, unless it is interrupted. */
export class SharedLine {
  readonly #sockets = new Set<Socket>();
  #isOpen = true;
  readonly #server = createServer((near) => {
    const far = connect(this.target);
    const pair = [near, far];
    for (const socket of pair) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#sockets.delete(socket);
        for (const each of pair) each.destroy();
      });
    }
    near.pipe(far).pipe(near);
    if (!this.#isOpen) near.destroy();
  });

  private constructor(readonly target: { path: string } | { host: string; port: number }) {}

  static async open(target: SharedLine["target"], path?: string): Promise<SharedLine> {
    const line = new SharedLine(target);
    const listen = path === undefined ? { host: "127.0.0.1", port: 0 } : { path };
    await new Promise<void>((resolve) => line.#server.listen(listen, resolve));
    return line;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get path(): string {
    return this.#server.address() as string;
  }

  interrupt(): void {
    this.#isOpen = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  resume(): void {
    this.#isOpen = true;
  }

  close(): void {
    this.interrupt();
    this.#server.close();
  }
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

interface Spread {
  gateways: readonly { url: string }[];
  keys: readonly string[];
}

/** The status of a dear request; instances and keys take turns, and half of the requests stream. */
export async function askDear({ gateways, keys }: Spread, i: number): Promise<number> {
  const answer = await fetch(`${gateways[i % gateways.length]!.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${keys[i % keys.length]}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: DEAR,
      messages: [{ role: "user", content: "hi" }],
      max_tokens: 1_000,
      stream: i % 2 === 0,
    }),
  });
  await answer.text();
  return answer.status;
}

/** How many of so many at once are served. */
export async function countServed(spread: Spread, times: number): Promise<number> {
  const statuses = await Promise.all(Array.from({ length: times }, (_, i) => askDear(spread, i)));
  return statuses.filter((status) => status === 200).length;
}
