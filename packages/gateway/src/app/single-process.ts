import { join } from "node:path";
import type { Config } from "../config.ts";
import { InstanceLock } from "../kernel/instance-lock.ts";
import type { Log } from "../kernel/log.ts";
import { privateFolder } from "../kernel/private-files.ts";

function tryLock(dataDir: string): InstanceLock | null {
  privateFolder(dataDir);
  try {
    return InstanceLock.tryAcquire(join(dataDir, "service.lock"));
  } catch (error) {
    throw new Error(`${dataDir} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

const isShared = ({ databaseUrl, redisUrl }: Config) => databaseUrl !== null || redisUrl !== null;

/** Null if several processes may share the configuration, or if another one holds the lock. */
export function lockAlone(config: Config): InstanceLock | null {
  return isShared(config) ? null : tryLock(config.dataDir);
}

/** Without a bus, processes miss each other's revocations and limits: acceptable for a brief handover only. */
export function warnUnlessAlone(config: Config, lock: InstanceLock | null, log: Log): void {
  if (lock || isShared(config)) return;
  log.warn(
    `another process serves from ${config.dataDir}: they do not share revoked keys or rate limits; stop one, or let them share a Postgres (SERVICE_DATABASE_URL) and a Redis (SERVICE_REDIS_URL)`,
  );
}

/** For the supervisor: a second one would count limits and holds separately. With Redis several may run. */
export function lockForWorkers(config: Config): InstanceLock | null {
  if (config.redisUrl !== null) return null;
  const lock = tryLock(config.dataDir);
  if (lock) return lock;
  throw new Error(
    `another process serves from ${config.dataDir}, and would not share limits with these workers: stop it first, or set SERVICE_DATA_DIR to another directory`,
  );
}
