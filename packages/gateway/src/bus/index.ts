import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { WriteTurn } from "../kernel/write-turn.ts";
import type { Bus, RateLimiter, Reservations } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { InProcessRateLimiter } from "./in-process/rate-limiter.ts";
import { InProcessReservations } from "./in-process/reservations.ts";
import { WorkerBus } from "./workers/bus.ts";
import { WorkerLink } from "./workers/link.ts";
import { WorkerRateLimiter } from "./workers/rate-limiter.ts";
import { WorkerReservations } from "./workers/reservations.ts";

/** How a worker reaches its supervisor, and its id there. */
export interface SupervisorAddress {
  path: string;
  worker: string;
}

interface BusOptions {
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
  const { redisUrl, supervisor = null, clock, ids, log } = options;
  const fallback = new InProcessRateLimiter(clock);
  if (redisUrl === null && supervisor !== null) return openWorkerBus(supervisor, fallback, log);
  if (redisUrl === null) {
    const bus = new InProcessBus();
    const reservations = new InProcessReservations();
    return { bus, limiter: fallback, reservations, writeTurn: null, close: () => bus.close() };
  }
  // Loaded only where it is used.
  const { openRedis } = await import("./redis/index.ts");
  return openRedis({ redisUrl, fallback, clock, ids, log });
}

async function openWorkerBus(
  { path, worker }: SupervisorAddress,
  fallback: RateLimiter,
  log: Log,
): Promise<Shared> {
  const link = new WorkerLink({ path, log });
  const reservations = new WorkerReservations({ link, worker });
  const bus = new WorkerBus(link);
  try {
    await link.open();
  } catch (error) {
    link.close();
    throw new Error(`the supervisor's socket ${path} cannot be used: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const close = async () => {
    await reservations.close();
    link.close();
    await bus.close();
  };
  const writeTurn = async () => {
    const isOurs = await link
      .ask((id) => ["write", id])
      .then(
        () => true,
        () => false,
      );
    return () => {
      if (isOurs) link.send(["written"]);
    };
  };
  return { bus, limiter: new WorkerRateLimiter({ link, fallback }), reservations, writeTurn, close };
}
