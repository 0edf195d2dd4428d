import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { WriteTurn } from "../kernel/write-turn.ts";
import type { Bus, RateLimiter, Reservations } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { InProcessRateLimiter } from "./in-process/rate-limiter.ts";
import { InProcessReservations } from "./in-process/reservations.ts";

/** How a worker reaches its supervisor, and its id there. */
export interface SupervisorAddress {
  path: string;
  worker: string;
}

export interface BusOptions {
  redisUrl: string | null;
  /** Where there is no Redis; null: this process is alone. */
  supervisor?: SupervisorAddress | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** What instances share, over Redis where that is configured, or over the socket of their supervisor. */
export interface Shared {
  bus: Bus;
  limiter: RateLimiter;
  reservations: Reservations;
  /** The order in which workers write to their common database file. */
  writeTurn: WriteTurn | null;
  close(): Promise<void>;
}

export async function openBus(options: BusOptions): Promise<Shared> {
  const { redisUrl, supervisor = null, clock } = options;
  // What is not used is not loaded: a start takes long enough.
  if (redisUrl !== null) {
    const { openRedisBus } = await import("./redis/index.ts");
    return openRedisBus(redisUrl, options);
  }
  if (supervisor !== null) {
    const { openWorkerBus } = await import("./workers/index.ts");
    return openWorkerBus(supervisor, options);
  }
  const bus = new InProcessBus();
  const limiter = new InProcessRateLimiter(clock);
  const reservations = new InProcessReservations();
  return { bus, limiter, reservations, writeTurn: null, close: () => bus.close() };
}
