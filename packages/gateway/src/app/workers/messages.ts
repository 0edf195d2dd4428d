import type { Config } from "../../config.ts";

export interface WorkerPlace {
  number: number;
  count: number;
  starts: number;
  /** The same for all workers of a supervisor. */
  service: string;
  /** The supervisor's socket; null with Redis. */
  supervisorPath: string | null;
}

export type ToWorker = { start: { config: Config; place: WorkerPlace } } | { drain: true };

export type FromWorker =
  | { ready: { url: string; port: number; introduction: string } }
  | { failed: { message: string; code?: string } };
