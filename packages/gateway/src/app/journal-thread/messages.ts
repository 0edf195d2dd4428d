import type { SettleOrder, SettleReport } from "../../rooms/metering/settler.ts";
import type { StorageOptions } from "../../storage/index.ts";

/** What the settling thread opens before its first order. */
export interface ThreadOptions {
  storage: StorageOptions;
  pointsPerUsd: number;
}

export type Request = { open: ThreadOptions } | { order: SettleOrder } | { close: true };

/** From the settling thread, one per order. News are JSON texts, so that they are parsed one at a time. */
export type SettlingAnswer =
  | { report: Omit<SettleReport, "news"> & { news: string[] } }
  | { refused: { message: string; rows: number } }
  | { failed: { message: string; stack: string | undefined } }
  | { closed: true };
