import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { Bus, Counter } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { LocalCounter } from "./in-process/counter.ts";

export interface BusOptions {
  redisUrl: string | null;
  /** The service that this process is part of: several may use one Redis. */
  service: string;
  /** The socket of this worker's supervisor, where there is no Redis; null: this process is alone. */
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

export async function openBus(options: BusOptions): Promise<Shared> {
  const { redisUrl, supervisorPath = null, clock } = options;
  // What is not used is not loaded: a start takes long enough.
  if (redisUrl !== null) {
    const { openRedisBus } = await import("./redis/index.ts");
    return openRedisBus(redisUrl, options);
  }
  if (supervisorPath !== null) {
    const { openWorkerBus } = await import("./workers/index.ts");
    return openWorkerBus(supervisorPath, options);
  }
  const bus = new InProcessBus();
  return { bus, counter: new LocalCounter(clock), close: () => bus.close() };
}
