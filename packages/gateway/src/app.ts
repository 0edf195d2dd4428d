import { BusEventHub } from "./bus/event-hub.ts";
import { openBus } from "./bus/index.ts";
import type { Config } from "./config.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Rooms } from "./kernel/context.ts";
import { type Ids, randomIds } from "./kernel/ids.ts";
import { createLog, type Log } from "./kernel/log.ts";
import { Metrics } from "./kernel/metrics.ts";
import { Registry } from "./kernel/registry.ts";
import { createAccounts } from "./rooms/accounts/index.ts";
import { Conversations } from "./rooms/conversations/index.ts";
import { createGroups } from "./rooms/groups/index.ts";
import { surfaces } from "./rooms/index.ts";
import { createKeys } from "./rooms/keys/index.ts";
import { createLedger } from "./rooms/ledger/index.ts";
import { Providers } from "./rooms/providers/index.ts";
import { System } from "./rooms/system/index.ts";
import { loadJwtSecret } from "./secrets.ts";
import { openStorage } from "./storage/index.ts";
import { documentRoutes } from "./transports/docs/routes.ts";
import { EventsTransport } from "./transports/events/sse.ts";
import { createRpcHttp } from "./transports/rpc/http.ts";
import { RpcRunner } from "./transports/rpc/runner.ts";
import { RpcWebSocket } from "./transports/rpc/websocket.ts";
import { startHttpServer } from "./transports/server.ts";
import { buildHash, VERSION } from "./version.ts";

/** What tests replace: time, randomness and the log. */
export interface AppOverrides {
  clock?: Clock;
  ids?: Ids;
  log?: Log;
}

export interface App {
  url: string;
  port: number;
  rooms: Rooms;
  log: Log;
  /** Unready first, then no new connections; open streams may finish until the deadline. */
  drain(): Promise<void>;
  /** Ends everything now. */
  stop(): Promise<void>;
}

/** Wires the whole service together; the only place that knows every part. */
export async function startApp(config: Config, overrides: AppOverrides = {}): Promise<App> {
  const clock = overrides.clock ?? systemClock;
  const ids = overrides.ids ?? randomIds;
  const log = overrides.log ?? createLog({ level: config.logLevel, format: config.logFormat });
  const metrics = new Metrics();

  const db = await openStorage(config);
  const { bus, limiter } = await openBus({ redisUrl: config.redisUrl, clock, ids, log });
  const events = new BusEventHub(bus, clock, ids);

  const accounts = createAccounts({
    db,
    bus,
    limiter,
    clock,
    ids,
    jwtSecret: loadJwtSecret(config.jwtSecret, config.dataDir),
    adminToken: config.adminToken,
    registrationOpen: config.registrationOpen,
  });
  const ledger = createLedger({ db, bus, clock, ids, pointsPerUsd: config.pointsPerUsd });
  const groups = createGroups({ db, bus, clock, ids, accounts, ledger });
  const providers = new Providers(db, clock);
  const rooms: Rooms = {
    accounts,
    ledger,
    groups,
    keys: createKeys({ db, bus, clock, ids, groups }),
    providers,
    metering: { admit: () => ({ settle() {}, release() {} }), checkRate() {} },
    conversations: new Conversations({ db, clock, ids }),
    system: new System({
      clock,
      version: VERSION,
      buildHash: buildHash(),
      figures: {
        agentsOnline: () => 0,
        gpuNodes: () => 0,
        modelsDeployed: () => 0,
        modelsRoutable: () => 0,
        providers: async () => (await providers.list()).length,
      },
    }),
  };

  const registry = new Registry(surfaces);
  const calls = metrics.counter("gateway_rpc_calls_total", "JSON-RPC calls by method and outcome");
  const runner = new RpcRunner({ registry, rooms, log, calls });
  const eventsTransport = new EventsTransport({ events, authenticator: accounts, clock });
  metrics.gauge(
    "gateway_event_subscribers",
    "Open notification streams",
    () => eventsTransport.subscriberCount,
  );

  const server = startHttpServer({
    host: config.host,
    port: config.port,
    reusePort: config.reusePort,
    routes: [...registry.routes, ...documentRoutes({ registry, metrics, version: VERSION })],
    rpcHttp: createRpcHttp({ runner, authenticator: accounts, events }),
    rpcSocket: new RpcWebSocket({ runner, registry, authenticator: accounts, clock, ids }),
    events: eventsTransport,
    sockets: {},
    authenticator: accounts,
    rooms,
    ids,
    log,
    trustedProxies: new Set(config.trustedProxies),
    corsOrigins: config.corsOrigins,
  });

  const close = async () => {
    await bus.close();
    await db.close();
  };
  return {
    url: `http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${server.port}`,
    port: server.port!,
    rooms,
    log,
    async drain() {
      rooms.system.draining = true;
      await Bun.sleep(config.drainGraceMs);
      const finished = server.stop();
      await Promise.race([finished, Bun.sleep(config.drainTimeoutMs)]);
      await server.stop(true);
      await close();
    },
    async stop() {
      await server.stop(true);
      await close();
    },
  };
}
