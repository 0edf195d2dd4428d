import type { Migration } from "../migrate.ts";
import { splitUsage } from "../postgres/months.ts";

/**
 * Postgres keeps usage rows by month. Each month has the id as its key: a row that is written again carries the same
 * time, so that it meets itself in the same month.
 */
export const usageMonths: Migration = {
  id: 24,
  name: "usage rows by month",
  statements: [],
  online: { postgres: splitUsage },
};
