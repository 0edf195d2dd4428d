/** The settling thread: writes journaled usage to the database without holding the event loop that serves requests. */
import { InProcessBus } from "../../bus/in-process/bus.ts";
import { systemClock } from "../../kernel/clock.ts";
import { randomIds } from "../../kernel/ids.ts";
import { answerCalls } from "../../kernel/threads.ts";
import { BillingStore, Tiers } from "../../rooms/billing/for-thread.ts";
import { Ledger } from "../../rooms/ledger/for-thread.ts";
import {
  JournalSettler,
  RefusedRows,
  type SettleOrder,
  type SettleReport,
} from "../../rooms/metering/settler.ts";
import { UsageStore } from "../../rooms/usage/for-thread.ts";
import type { Database } from "../../storage/contract.ts";
import { openDatabase, type StorageOptions } from "../../storage/index.ts";

/** The WAL is checkpointed after this many rows, or this long after a change. */
const CHECKPOINT_ROWS = 16_384;
const CHECKPOINT_MS = 10_000;

export interface SettlerOptions {
  storage: StorageOptions;
  pointsPerUsd: number;
}

export type SettlingAsk = (SettlerOptions & { order: SettleOrder }) | "close";

/** News are JSON texts, so that the other thread parses one at a time. */
export type SettlingAnswer =
  | { report: Omit<SettleReport, "news"> & { news: string[] } }
  | { refused: { message: string; rows: number } };

let opened: { db: Database; settler: JournalSettler } | null = null;
let rowsSinceCheckpoint = 0;

async function open({ storage, pointsPerUsd }: SettlerOptions) {
  const db = await openDatabase(storage, { forSettling: true });
  opened = { db, settler: settlerOn(db, pointsPerUsd) };
  return opened;
}

/** Ignores failures: the WAL is just checkpointed later. */
async function checkpoint(): Promise<void> {
  rowsSinceCheckpoint = 0;
  await opened?.db.checkpoint().catch(() => {});
}

answerCalls<SettlingAsk, SettlingAnswer | null>(async (ask) => {
  if (ask === "close") {
    await opened?.db.close();
    opened = null;
    return null;
  }
  try {
    const { settler } = opened ?? (await open(ask));
    const { news, ...rest } = await settler.settle(ask.order);
    rowsSinceCheckpoint += rest.rows;
    // After the answer.
    if (rowsSinceCheckpoint >= CHECKPOINT_ROWS) setImmediate(checkpoint);
    return { report: { ...rest, news: Array.from(news, (part) => JSON.stringify(part)) } };
  } catch (error) {
    if (!(error instanceof RefusedRows)) throw error;
    return { refused: { message: error.message, rows: error.rows } };
  }
});
setInterval(checkpoint, CHECKPOINT_MS);

export function settlerOn(db: Database, pointsPerUsd: number): JournalSettler {
  const bus = new InProcessBus();
  const ledger = new Ledger({ db, bus, clock: systemClock, ids: randomIds, pointsPerUsd });
  const tiers = new Tiers(new BillingStore(db));
  return new JournalSettler({ db, ledger, tiers, store: new UsageStore(db), pointsPerUsd });
}
