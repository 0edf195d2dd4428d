import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "./config.ts";
import { InstanceLock } from "./kernel/instance-lock.ts";

function tryLock(dataDir: string): InstanceLock | null {
  try {
    return InstanceLock.tryAcquire(join(dataDir, "service.lock"));
  } catch (error) {
    throw new Error(`${dataDir} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

/** Processes that share a file but no bus would not hear of each other's revocations, and each count limits anew. */
export function lockAlone({ dataDir, databaseUrl, redisUrl }: Config): InstanceLock | null {
  if (databaseUrl !== null || redisUrl !== null) return null;
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const lock = tryLock(dataDir);
  if (lock) return lock;
  throw new Error(
    `another process serves from ${dataDir}: stop it, or set SERVICE_DATA_DIR to another directory; several instances share a Postgres (SERVICE_DATABASE_URL) and a Redis (SERVICE_REDIS_URL)`,
  );
}
