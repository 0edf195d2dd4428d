import type { Log } from "./log.ts";

/** Work that nobody awaits: a failure is logged and affects nothing else. */
export function inBackground(log: Log, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => log.error(`${what} failed`, { error }));
}
