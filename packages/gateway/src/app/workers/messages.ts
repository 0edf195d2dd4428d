import type { Config } from "../../config.ts";

export interface WorkerPlace {
  number: number;
  count: number;
  /** How often a worker with this number was started. */
  starts: number;
  /** Common to the workers of one supervisor. */
  service: string;
  /** The supervisor's socket; null where Redis is shared instead. */
  supervisorPath: string | null;
}

/** To a worker, over the pipe that it was started with. */
export type ToWorker = { start: { config: Config; place: WorkerPlace } } | { drain: true };

export type FromWorker =
  /** It takes requests. The introduction is what a start prints. */
  | { ready: { url: string; port: number; introduction: string } }
  | { failed: { message: string; code?: string } };
