import { Outage } from "../kernel/errors.ts";

/** SQLSTATE: connection lost, no resources, starting or stopping, read-only, or aborted in favour of another transaction. */
const POSTGRES_STATES = /^(08|53|57P0|(25006|40001|40P01)$)/;
const POSTGRES_CODES = /^ERR_POSTGRES_(CONNECTION|IDLE_TIMEOUT|LIFETIME_TIMEOUT)/;
const SQLITE_CODES = /^SQLITE_(BUSY|LOCKED|FULL|READONLY|IOERR|CANTOPEN)/;

function isOutage(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  if (typeof errno === "string" && POSTGRES_STATES.test(errno)) return true;
  return typeof code === "string" && (POSTGRES_CODES.test(code) || SQLITE_CODES.test(code));
}

/** Rethrows failures caused by the state of the database, not by the query, as `Outage`. */
export async function namingOutages<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw isOutage(error) ? new Outage(error.message, { cause: error }) : error;
  }
}
