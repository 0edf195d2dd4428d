import type { SettleOrder, SettleReport } from "../../rooms/metering/settler.ts";
import type { StorageOptions } from "../../storage/index.ts";

/** What the settling thread opens before its first order. */
export interface ThreadOptions {
  storage: StorageOptions;
  pointsPerUsd: number;
}

export type Request = { open: ThreadOptions } | { order: SettleOrder } | { close: true };

/**
 * From the settling thread, one for each order. The news are JSON texts, which the other side takes apart one at a
 * time: as objects, all of them would have to be made at once.
 */
export type SettlingAnswer =
  | { report: Omit<SettleReport, "news"> & { news: string[] } }
  | { refused: { message: string; rows: number } }
  | { failed: { message: string; stack: string | undefined } }
  | { closed: true };
