import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { Requests, type RequestsOptions } from "../../src/rooms/requests/index.ts";
import type { Database } from "../../src/storage/contract.ts";

export const NOW = Date.parse("2026-11-15T12:30:00Z");
export const ADMIN = { userId: "00000000-0000-4000-8000-000000000001", email: "", name: "", isAdmin: true };

/** The room alone, whose time stands still. */
export const room = (db: Database, more: Partial<RequestsOptions> = {}) =>
  new Requests({
    db,
    bus: new InProcessBus(),
    events: {} as never,
    clock: new ManualClock(NOW),
    ids: randomIds,
    log: silentLog,
    metrics: new Metrics(),
    captures: { of: async () => null } as never,
    groups: { requireAdmin: async () => {} },
    metering: { write: () => true },
    usage: { settled: async () => {} },
    knownModel: () => null,
    settings: { requestRecordsDays: 30, requestRecordsMax: 1_000_000 },
    ...more,
  });

/** Ids of all requests that these parameters find, page by page. */
export async function listed(requests: Requests, params: object = {}): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await requests.list(ADMIN, { everyone: true, limit: 100, ...params, cursor });
    ids.push(...page.records.map(({ id }) => id));
    cursor = page.next_cursor ?? undefined;
  } while (cursor);
  return ids;
}
