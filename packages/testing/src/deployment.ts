/** The same service as several processes would be: workers of one supervisor, or instances on Postgres and Redis. */
import { test } from "bun:test";
import { mkdirSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import { type App, type AppOverrides, startApp } from "@model-gateway/gateway/app/index.ts";
import { WorkerHub } from "@model-gateway/gateway/bus/workers/hub.ts";
import type { Config } from "@model-gateway/gateway/config.ts";
import { systemClock } from "@model-gateway/gateway/kernel/clock.ts";
import { silentLog } from "@model-gateway/gateway/kernel/log.ts";
import { freshDatabase, withOwn } from "./databases.ts";

export const deployments = { workers: 2, instances: 3 } as const;
export type Deployment = keyof typeof deployments;

/** What `npm run deployments` asks of every service that a test boots; null: one process. */
export const deploymentOfRun = (process.env.TEST_DEPLOYMENT || null) as Deployment | null;

/** A test that looks at what each process has for itself, or into the one that it booted. */
export const inOneProcess = deploymentOfRun ? test.skip : test;

/** Whether it is so in every process: connections that are opened one after the other reach them in turn. */
export async function everywhere(isSo: () => Promise<boolean>): Promise<boolean> {
  const processes = deploymentOfRun ? deployments[deploymentOfRun] : 1;
  for (let i = 0; i < processes; i++) if (!(await isSo())) return false;
  return true;
}

if (deploymentOfRun) {
  // A connection for each request, so that the requests of a test reach all parts of the service in turn.
  const reusing = globalThis.fetch;
  const once = (input: Parameters<typeof fetch>[0], init?: RequestInit) =>
    reusing(input, { ...init, keepalive: false });
  globalThis.fetch = Object.assign(once, reusing);
}

/** By data directory, so that a service that starts again there finds what it had. */
const databases = new Map<string, string>();

/** The database that a service in this directory will use where it is several instances; null: its own file. */
export const databaseOfRun = async (dataDir: string): Promise<string | null> =>
  deploymentOfRun === "instances" ? databaseOf(dataDir) : null;

async function databaseOf(dataDir: string): Promise<string> {
  const known = databases.get(dataDir);
  if (known) return known;
  const { options } = await freshDatabase("postgres");
  databases.set(dataDir, options.databaseUrl!);
  return options.databaseUrl!;
}

/** Passes each connection on to the next of the ports. */
async function spread(ports: readonly number[]): Promise<Server> {
  let next = 0;
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const port = ports[next++ % ports.length]!;
    const localAddress = near.remoteAddress;
    const far = connect({ port, host: "127.0.0.1", localAddress, allowHalfOpen: true });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.setNoDelay(true);
      from.on("error", () => to.resetAndDestroy());
      from.pipe(to);
      from.on("close", () => to.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

export interface Deployed {
  /** The first of them, which stops them all. */
  app: App;
  url: string;
  stop(): Promise<void>;
}

/** Boots as many as the deployment has, behind one address. */
export async function deploy(
  deployment: Deployment,
  config: Config,
  overrides: AppOverrides,
): Promise<Deployed> {
  const count = deployments[deployment];
  const { dataDir } = config;
  const path = join(dataDir, "workers.sock");
  const hub = deployment === "workers" ? new WorkerHub({ path, clock: systemClock, log: silentLog }) : null;
  const service = crypto.randomUUID();
  const apps: App[] = [];
  for (let number = 1; number <= count; number++) {
    const own = join(dataDir, String(number));
    if (!hub) mkdirSync(own, { recursive: true });
    const shared = hub
      ? config
      : {
          ...config,
          dataDir: own,
          databaseUrl: config.databaseUrl ?? (await databaseOf(dataDir)),
          redisUrl: process.env.TEST_REDIS_URL!,
          jwtSecret: config.jwtSecret ?? `a secret that all instances share: ${dataDir}`,
        };
    const worker = { number, count, starts: 1, service, supervisorPath: path };
    apps.push(await startApp(shared, { ...overrides, ...(hub && { worker }) }));
  }
  const front = await spread(apps.map(({ port }) => port));
  const stopAll = async () => {
    front.close();
    for (const app of apps) await app.stop();
    hub?.close();
  };
  let stopping: Promise<void> | null = null;
  const stop = () => (stopping ??= stopAll());
  return {
    app: withOwn(apps[0]!, "stop", stop),
    url: `http://127.0.0.1:${(front.address() as AddressInfo).port}`,
    stop,
  };
}
