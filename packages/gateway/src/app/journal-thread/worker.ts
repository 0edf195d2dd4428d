/** The settling thread: writes journaled usage to the database without holding the event loop that serves requests. */
import { InProcessBus } from "../../bus/in-process/bus.ts";
import { systemClock } from "../../kernel/clock.ts";
import { randomIds } from "../../kernel/ids.ts";
import { BillingStore, Tiers } from "../../rooms/billing/for-thread.ts";
import { Ledger } from "../../rooms/ledger/for-thread.ts";
import { JournalSettler, RefusedRows, type SettleOrder } from "../../rooms/metering/settler.ts";
import { UsageStore } from "../../rooms/usage/for-thread.ts";
import type { Database } from "../../storage/contract.ts";
import { openDatabase } from "../../storage/index.ts";
import type { Request, SettlingAnswer, ThreadOptions } from "./messages.ts";

declare const self: Worker;

/** The log is moved into the database file after this many rows, or this long after a change. */
const CHECKPOINT_ROWS = 16_384;
const CHECKPOINT_MS = 10_000;

interface Open {
  db: Database;
  settler: JournalSettler;
}

let options: ThreadOptions | null = null;
let opened: Open | null = null;
let rowsSinceCheckpoint = 0;

async function open(): Promise<Open> {
  if (!options) throw new Error("the settling thread was not told what to open");
  const db = await openDatabase(options.storage, { forSettling: true });
  opened = { db, settler: settlerOn(db, options.pointsPerUsd) };
  return opened;
}

async function answerTo(order: SettleOrder): Promise<SettlingAnswer> {
  try {
    const { settler } = opened ?? (await open());
    const { news, ...rest } = await settler.settle(order);
    rowsSinceCheckpoint += rest.rows;
    return { report: { ...rest, news: Array.from(news, (part) => JSON.stringify(part)) } };
  } catch (error) {
    if (error instanceof RefusedRows) return { refused: { message: error.message, rows: error.rows } };
    const { message, stack } = error as Error;
    return { failed: { message, stack } };
  }
}

/** Ignore failures: the WAL is just checkpointed later. */
async function checkpoint(): Promise<void> {
  rowsSinceCheckpoint = 0;
  await opened?.db.checkpoint().catch(() => {});
}

const send = (answer: SettlingAnswer) => self.postMessage(answer);

self.onmessage = async ({ data }: MessageEvent<Request>) => {
  if ("open" in data) options = data.open;
  else if ("order" in data) {
    send(await answerTo(data.order));
    if (rowsSinceCheckpoint >= CHECKPOINT_ROWS) await checkpoint();
  } else {
    await opened?.db.close();
    opened = null;
    send({ closed: true });
  }
};
setInterval(checkpoint, CHECKPOINT_MS);

/** A settler in this thread; what it changes is told by its reports. */
export function settlerOn(db: Database, pointsPerUsd: number): JournalSettler {
  const ledger = new Ledger({
    db,
    bus: new InProcessBus(),
    clock: systemClock,
    ids: randomIds,
    pointsPerUsd,
  });
  const tiers = new Tiers(new BillingStore(db));
  return new JournalSettler({ db, ledger, tiers, store: new UsageStore(db), pointsPerUsd });
}
