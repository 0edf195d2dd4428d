import { InProcessBus } from "../../bus/in-process/bus.ts";
import { systemClock } from "../../kernel/clock.ts";
import { randomIds } from "../../kernel/ids.ts";
import { BillingStore, Tiers } from "../../rooms/billing/for-thread.ts";
import { Ledger } from "../../rooms/ledger/for-thread.ts";
import { JournalSettler } from "../../rooms/metering/settler.ts";
import { UsageStore } from "../../rooms/usage/for-thread.ts";
import type { Database } from "../../storage/contract.ts";

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
