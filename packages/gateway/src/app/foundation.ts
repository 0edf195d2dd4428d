import { BusEventHub } from "../bus/event-hub.ts";
import { openBus } from "../bus/index.ts";
import { BusRequests } from "../bus/requests.ts";
import { BusRevocations } from "../bus/revocations.ts";
import type { Config } from "../config.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { type Ids, randomIds } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import { VERSION } from "../kernel/version.ts";
import { Metrics } from "../observe/metrics.ts";
import { noTracer, OtlpTracer, type Tracer } from "../observe/tracing.ts";
import { loadJwtSecret, watchSigning } from "../rooms/accounts/index.ts";
import type { Foundation } from "../rooms/foundation.ts";
import type { Database } from "../storage/contract.ts";
import { databaseId, openStorage } from "../storage/index.ts";
import { DatabaseLeases } from "../storage/leases.ts";
import type { Life } from "./life.ts";
import type { WorkerPlace } from "./workers/messages.ts";

const PING_EVERY_MS = 10_000;

interface FoundationOptions {
  config: Config;
  life: Life;
  log: Log;
  clock?: Clock;
  ids?: Ids;
  worker: WorkerPlace | null;
}

function openTracer(
  { otlpEndpoint: endpoint, otlpHeaders: headers, otlpServiceName: serviceName }: Config,
  { clock, log, metrics }: { clock: Clock; log: Log; metrics: Metrics },
): Tracer {
  if (endpoint === null) return noTracer;
  const dropped = metrics.counter(
    "gateway_spans_dropped_total",
    "Spans dropped because the collector did not accept them in time",
  );
  const onDropped = (count: number) => dropped.add(count);
  return new OtlpTracer({ endpoint, headers, serviceName, version: VERSION, clock, log, onDropped });
}

/** Pings the database for the metrics; returns how to stop. */
function watchDatabase(db: Database, clock: Clock, metrics: Metrics): () => void {
  let pingSeconds = 0;
  const ping = async () => {
    const beganMs = clock.elapsed();
    const row = await db.get("SELECT 1").catch(() => null);
    pingSeconds = row ? (clock.elapsed() - beganMs) / 1000 : Number.NaN;
  };
  metrics.gauge("gateway_database_up", "Whether the database answered last time", () =>
    Number.isNaN(pingSeconds) ? 0 : 1,
  );
  metrics.gauge("gateway_database_ping_seconds", "How long it took to answer", () => pingSeconds);
  return clock.every(PING_EVERY_MS, () => void ping());
}

export async function openFoundation(options: FoundationOptions): Promise<Foundation> {
  const { config, life, log, clock = systemClock, ids = randomIds, worker } = options;
  const db = await openStorage(config);
  life.opened("database", () => db.close());
  const metrics = new Metrics();
  life.opened("database pings", watchDatabase(db, clock, metrics));
  const basics = { clock, ids, log, metrics };
  const tracer = openTracer(config, basics);
  life.opened("tracer", () => tracer.close());
  const shared = await openBus({
    redisUrl: config.redisUrl,
    service: await databaseId(db, config),
    supervisorPath: worker?.supervisorPath ?? null,
    ...basics,
  });
  life.opened("bus", () => shared.close());
  const { bus, counter } = shared;
  const jwtSecret = loadJwtSecret(config.jwtSecret, config.dataDir);
  await watchSigning({ bus, log, secret: jwtSecret });
  const leases = new DatabaseLeases({ db, clock, instance: ids.uuid() });
  // If the database is away, the leases expire.
  life.opened("leases", () => leases.releaseAll().catch(() => {}));
  const instances = bus.shared ? new BusRequests({ bus, clock, ids }) : null;
  life.opened("requests to other instances", () => instances?.close());
  const events = new BusEventHub(bus, clock, ids, instances);
  life.opened("notification channels", () => events.close());
  const revocations = new BusRevocations({ bus, clock, log });
  life.opened("revocations", () => revocations.close());
  return { ...basics, tracer, db, bus, counter, jwtSecret, leases, events, instances, revocations };
}
