import type { Log } from "./log.ts";

/** For work that nobody awaits: logs a failure. */
export function inBackground(log: Log, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => log.error(`${what} failed`, { error }));
}
