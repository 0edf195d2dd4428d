import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { Bus, Counter } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { MemoryCounter } from "./in-process/counter.ts";

const ALONE = "alone";

export interface BusOptions {
  redisUrl: string | null;
  /** Separates services that share one Redis. */
  service: string;
  /** The socket of this worker's supervisor; null with Redis, and if this process runs alone. */
  supervisorPath?: string | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

export interface Shared {
  bus: Bus;
  counter: Counter;
  close(): Promise<void>;
}

/** Loads only the bus that is used, for a fast start. */
export async function openBus(options: BusOptions): Promise<Shared> {
  const { redisUrl, supervisorPath = null, clock } = options;
  if (redisUrl !== null) {
    const { openRedisBus } = await import("./redis/index.ts");
    return openRedisBus(redisUrl, options);
  }
  if (supervisorPath !== null) {
    const { openWorkerBus } = await import("./workers/index.ts");
    return openWorkerBus(supervisorPath, options);
  }
  const bus = new InProcessBus();
  const memory = new MemoryCounter(clock);
  const counter: Counter = {
    hit: async (limits) => memory.hit(limits),
    grant: async (asking) => memory.grant(ALONE, asking),
    change: (changes) => memory.change(ALONE, changes),
  };
  return { bus, counter, close: () => bus.close() };
}
