import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { Bus, RateLimiter } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { InProcessRateLimiter } from "./in-process/rate-limiter.ts";
import { RedisBus } from "./redis/bus.ts";
import { RedisRateLimiter } from "./redis/rate-limiter.ts";

export interface BusOptions {
  /** Null: this process is alone. */
  redisUrl: string | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** The bus and the limiter of this instance, shared through Redis where that is configured. */
export async function openBus({
  redisUrl,
  clock,
  ids,
  log,
}: BusOptions): Promise<{ bus: Bus; limiter: RateLimiter }> {
  const local = new InProcessRateLimiter(clock);
  if (redisUrl === null) return { bus: new InProcessBus(), limiter: local };
  const bus = await RedisBus.connect({ url: redisUrl, instanceId: ids.uuid(), log });
  return { bus, limiter: new RedisRateLimiter({ client: bus.client, fallback: local, log }) };
}
