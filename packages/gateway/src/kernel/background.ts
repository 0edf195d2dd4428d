import type { Log } from "./log.ts";

/** Work that nobody waits for: what goes wrong with it is logged, and takes nothing else with it. */
export function inBackground(log: Log, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => log.error(`${what} failed`, { error }));
}
