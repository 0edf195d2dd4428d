import { accessSync, constants, existsSync, mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { availableParallelism } from "node:os";
import { dirname, join, resolve } from "node:path";
import { exposureOf, ownProcess } from "@model-gateway/gateway/app/exposure.ts";
import { socketPath } from "@model-gateway/gateway/app/workers/supervisor.ts";
import type { BridgeResolver } from "@model-gateway/gateway/backends/contract.ts";
import { backendFactory, localServers } from "@model-gateway/gateway/backends/index.ts";
import type { Config } from "@model-gateway/gateway/config.ts";
import { systemClock } from "@model-gateway/gateway/kernel/clock.ts";
import { randomIds } from "@model-gateway/gateway/kernel/ids.ts";
import { silentLog } from "@model-gateway/gateway/kernel/log.ts";
import { shownUrl } from "@model-gateway/gateway/kernel/shown-address.ts";
import { findLocalServers, type LocalServer } from "@model-gateway/gateway/rooms/system/index.ts";
import { openDatabase } from "@model-gateway/gateway/storage/index.ts";
import { migrations } from "@model-gateway/gateway/storage/migrations/index.ts";

export interface Finding {
  check: string;
  state: "ok" | "warning" | "failed";
  message: string;
  /** What to do about it. */
  remedy?: string;
}

export interface CheckOptions {
  config: Config;
  now(): number;
  /** For tests; the well-known ones otherwise. */
  localServers?: readonly LocalServer[];
}

const TIMEOUT_MS = 5_000;
const CLOCK_SLACK_MS = 60_000;
const ok = (check: string, message: string): Finding => ({ check, state: "ok", message });
const failed = (check: string, message: string, remedy: string): Finding => ({
  check,
  state: "failed",
  message,
  remedy,
});

const urlOf = ({ host, port }: Config) =>
  `http://${host === "0.0.0.0" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host}:${port}`;

interface Running {
  version: string;
  models: number;
}

/** The service itself, when it is the one that answers on the port. */
async function runningService(config: Config): Promise<Running | null> {
  try {
    const response = await fetch(`${urlOf(config)}/v1/health`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const body = (await response.json()) as Partial<Running> & { build_hash?: string };
    return body.build_hash !== undefined && body.version !== undefined
      ? { version: body.version, models: body.models ?? 0 }
      : null;
  } catch {
    return null;
  }
}

function portIsFree({ host, port }: Config): Promise<Error | null> {
  return new Promise((done) => {
    const server = createServer();
    server.once("error", (error) => done(error));
    server.listen({ host, port, exclusive: true }, () => server.close(() => done(null)));
  });
}

/** How the service would run, as far as it makes it easier to attack. */
export function checkExposure({ config }: Pick<CheckOptions, "config">): Finding[] {
  return exposureOf(config, ownProcess()).map((exposure) => ({
    check: "exposure",
    state: "warning",
    ...exposure,
  }));
}

/** Registration that administrators opened while the service ran; the environment, where it says anything, wins. */
async function openedInConsole(
  db: { get<T>(sql: string): Promise<T | null> },
  config: Config,
): Promise<Finding[]> {
  const saved = await db
    .get<{ value: string }>("SELECT value FROM service_settings WHERE name = 'SERVICE_REGISTRATION_OPEN'")
    .catch(() => null);
  if (config.registrationOpen !== null || !["1", "true"].includes(saved?.value.toLowerCase() ?? ""))
    return [];
  const known = checkExposure({ config }).map(({ message }) => message);
  return checkExposure({ config: { ...config, registrationOpen: true } }).filter(
    ({ message }) => !known.includes(message),
  );
}

export async function checkPort({ config }: CheckOptions): Promise<Finding> {
  const running = await runningService(config);
  if (running) return ok("port", `the service (version ${running.version}) is running on ${urlOf(config)}`);
  const problem = (await portIsFree(config)) as (Error & { code?: string }) | null;
  if (!problem) return ok("port", `${config.host}:${config.port} is free`);
  if (problem.code === "EADDRINUSE")
    return failed(
      "port",
      `port ${config.port} is taken by another program`,
      "stop that program, or set SERVICE_PORT to another port",
    );
  if (problem.code === "EACCES")
    return failed(
      "port",
      `this account may not listen on port ${config.port}`,
      "set SERVICE_PORT to a port above 1023",
    );
  return failed(
    "port",
    `cannot listen on ${config.host}:${config.port}: ${problem.message}`,
    "set SERVICE_HOST to an address of this machine",
  );
}

export function checkDataDir({ config }: CheckOptions): Finding {
  const dir = resolve(config.dataDir);
  const remedy = "give this account the right to write there, or set SERVICE_DATA_DIR to another directory";
  try {
    if (!existsSync(dir)) {
      // A check must not change anything: for a directory that does not exist yet, its parent is checked.
      let parent = dirname(dir);
      while (!existsSync(parent)) parent = dirname(parent);
      accessSync(parent, constants.W_OK | constants.X_OK);
      return ok("data directory", `${dir} will be made at the first start`);
    }
    if (!statSync(dir).isDirectory()) return failed("data directory", `${dir} is not a directory`, remedy);
    const probe = join(dir, `.doctor-${process.pid}`);
    writeFileSync(probe, "");
    rmSync(probe);
    return ok("data directory", `${dir} can be written`);
  } catch (error) {
    return failed("data directory", `${dir} cannot be written: ${(error as Error).message}`, remedy);
  }
}

export async function checkDatabase({ config, now }: CheckOptions): Promise<Finding[]> {
  const embedded = config.databaseUrl === null;
  const where = embedded ? "the embedded database" : shownUrl(config.databaseUrl!);
  if (embedded && !existsSync(config.dataDir)) return [ok("database", "it will be made at the first start")];
  try {
    if (embedded) mkdirSync(config.dataDir, { recursive: true });
    const db = await withTimeout(
      openDatabase(config),
      `${where} did not answer within ${TIMEOUT_MS / 1000} s`,
    );
    try {
      await db.get("SELECT 1");
      const rows = await db
        .all<{ id: number; applied_at: string }>("SELECT id, applied_at FROM schema_migrations ORDER BY id")
        .catch(() => []);
      const newest = migrations.at(-1)?.id ?? 0;
      const missing = newest - (rows.at(-1)?.id ?? 0);
      const schema = missing > 0 ? `; its schema is brought up to date at the next start` : "";
      const findings = [ok("database", `${where} answers${schema}`)];
      const latest = rows.at(-1)?.applied_at;
      if (latest && Date.parse(latest) > now() + CLOCK_SLACK_MS) findings.push(clockIsBehind(latest));
      if (db.dialect === "postgres") findings.push(...(await compareClocks(db, now)));
      findings.push(...(await openedInConsole(db, config)));
      return findings;
    } finally {
      await db.close();
    }
  } catch (error) {
    return [
      failed(
        "database",
        (error as Error).message,
        embedded
          ? "check the data directory, or restore a backup"
          : "check SERVICE_DATABASE_URL and that the database runs and lets this machine in",
      ),
    ];
  }
}

async function withTimeout<T>(work: Promise<T>, message: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(message)), TIMEOUT_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

const CLOCK_REMEDY =
  "set the clock, e.g. by turning on time synchronisation: tokens, quotas and usage all go by it";
const clockIsBehind = (latest: string) =>
  failed(
    "clock",
    `the clock is wrong: the database was last changed at ${latest}, which it calls the future`,
    CLOCK_REMEDY,
  );

async function compareClocks(
  db: { get<T>(sql: string): Promise<T | null> },
  now: () => number,
): Promise<Finding[]> {
  const row = await db.get<{ now_ms: number | string }>("SELECT EXTRACT(EPOCH FROM now()) * 1000 AS now_ms");
  const apartMs = Math.abs(Number(row?.now_ms) - now());
  if (!Number.isFinite(apartMs) || apartMs <= CLOCK_SLACK_MS) return [];
  return [
    failed(
      "clock",
      `the clock is wrong: it differs from the database's by ${Math.round(apartMs / 1000)} s`,
      CLOCK_REMEDY,
    ),
  ];
}

/** Our files cannot be newer than now. */
export function checkClock({ now }: CheckOptions): Finding {
  const built =
    statSync(join(import.meta.dir, "../../../../gateway/package.json"), { throwIfNoEntry: false })?.mtimeMs ??
    0;
  if (now() + CLOCK_SLACK_MS < built)
    return failed(
      "clock",
      `the clock is wrong: it says ${new Date(now()).toISOString()}, before this program was installed`,
      CLOCK_REMEDY,
    );
  return ok("clock", new Date(now()).toISOString());
}

/** Nothing for one process. */
export function checkWorkers({ config }: CheckOptions): Finding[] {
  if (config.workers === 1) return [];
  try {
    if (config.redisUrl === null) socketPath(config.dataDir);
  } catch (error) {
    return [failed("workers", (error as Error).message, "set SERVICE_DATA_DIR to a shorter path")];
  }
  const cores = availableParallelism();
  const message = `${config.workers} processes on ${cores} ${cores === 1 ? "core" : "cores"}`;
  if (config.workers <= cores) return [ok("workers", message)];
  const remedy = "SERVICE_WORKERS=auto starts one for each core; more only take memory";
  return [{ check: "workers", state: "warning", message, remedy }];
}

export async function checkRedis({ config }: CheckOptions): Promise<Finding[]> {
  if (config.redisUrl === null) return [];
  const client = new Bun.RedisClient(config.redisUrl, {
    autoReconnect: false,
    connectionTimeout: TIMEOUT_MS,
  });
  try {
    await client.send("PING", []);
    return [ok("redis", `${shownUrl(config.redisUrl)} answers`)];
  } catch (error) {
    const message = `${shownUrl(config.redisUrl)} cannot be reached: ${(error as Error).message}`;
    return [failed("redis", message, "check SERVICE_REDIS_URL and that Redis runs")];
  } finally {
    client.close();
  }
}

const ADD_BACKEND = "register one: model-gateway backends add http://localhost:11434";

/** Suggests local model servers that are not registered yet. */
async function suggestion({ config, localServers: servers = localServers }: CheckOptions): Promise<string> {
  const deps = { fetch, openOrigin: null, clock: systemClock, ids: randomIds, log: silentLog };
  const { create } = backendFactory(deps, NO_BRIDGE);
  const tried = await findLocalServers({ servers, create, ownPort: config.port });
  const found = tried.filter((server) => server.found).map(({ label, url }) => `${label} at ${url}`);
  if (found.length === 0) return ADD_BACKEND;
  return `${found.join(", ")} answered here; register it: model-gateway backends detect --add`;
}

const NO_BRIDGE: BridgeResolver = {
  connect: () => Promise.reject(new Error("no bridge is needed on this machine")),
  watch: () => () => {},
};

export async function checkBackends(options: CheckOptions): Promise<Finding> {
  const { config } = options;
  const running = await runningService(config);
  if (running) {
    if (running.models > 0) return ok("backends", `${running.models} models can be called`);
    return {
      check: "backends",
      state: "warning",
      message: "no backend is healthy, so no model can be called",
      remedy: await suggestion(options),
    };
  }
  const registered = await registeredBackends(config);
  if (registered > 0)
    return ok("backends", `${registered} registered; the service is not running, so their health is unknown`);
  return {
    check: "backends",
    state: "warning",
    message: "no backend is registered",
    remedy: `start the service, then ${await suggestion(options)}`,
  };
}

async function registeredBackends(config: Config): Promise<number> {
  if (config.databaseUrl === null && !existsSync(config.dataDir)) return 0;
  try {
    const db = await openDatabase(config);
    try {
      return (await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM backend_configs"))?.n ?? 0;
    } finally {
      await db.close();
    }
  } catch {
    // The database has its own finding.
    return 0;
  }
}
