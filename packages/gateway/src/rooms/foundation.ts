import type { Bus, Counter, EventHub, Requests, Revocations } from "../bus/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Tracer } from "../observe/tracing.ts";
import type { Database, Leases } from "../storage/contract.ts";

export interface Foundation {
  clock: Clock;
  ids: Ids;
  log: Log;
  metrics: Metrics;
  tracer: Tracer;
  db: Database;
  leases: Leases;
  bus: Bus;
  counter: Counter;
  events: EventHub;
  revocations: Revocations;
  /** Requests to other instances; null when this process runs alone. */
  instances: Requests | null;
  /** Signs access tokens; other keys are derived from it. */
  jwtSecret: Uint8Array;
}

/** The parts that a room, or a part of one, asks for. */
export type Needs<Part extends keyof Foundation> = Pick<Foundation, Part>;
