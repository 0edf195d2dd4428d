import { join } from "node:path";
import type { Config } from "../config.ts";
import { InstanceLock } from "../kernel/instance-lock.ts";
import type { Log } from "../kernel/log.ts";
import { privateFolder } from "../kernel/private-files.ts";

function tryLock(dataDir: string): InstanceLock | null {
  try {
    return InstanceLock.tryAcquire(join(dataDir, "service.lock"));
  } catch (error) {
    throw new Error(`${dataDir} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

/** Whether several processes may share this configuration. */
const isShared = ({ databaseUrl, redisUrl }: Config) => databaseUrl !== null || redisUrl !== null;

/** Held as long as the process lives; null when another one holds it, or when there may be several. */
export function lockAlone(config: Config): InstanceLock | null {
  if (isShared(config)) return null;
  privateFolder(config.dataDir);
  return tryLock(config.dataDir);
}

/**
 * Processes that share a file but no bus do not see each other's revocations, and each counts limits separately.
 * Acceptable for a brief handover during a restart, not as a way to run the service.
 */
export function warnUnlessAlone(config: Config, lock: InstanceLock | null, log: Log): void {
  if (lock || isShared(config)) return;
  log.warn(
    `another process serves from ${config.dataDir}: they do not share revoked keys or rate limits; stop one, or let them share a Postgres (SERVICE_DATABASE_URL) and a Redis (SERVICE_REDIS_URL)`,
  );
}
