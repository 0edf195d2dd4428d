import { AgentPool } from "./backends/agent-node/index.ts";
import { Bridge } from "./backends/bridge/index.ts";
import type { OriginOptions } from "./backends/contract.ts";
import { HttpOrigin } from "./backends/http1/origin.ts";
import { backendFactory } from "./backends/index.ts";
import { BusEventHub } from "./bus/event-hub.ts";
import { openBus } from "./bus/index.ts";
import { BusRequests } from "./bus/requests.ts";
import type { Config } from "./config.ts";
import { Housekeeping } from "./housekeeping.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Rooms } from "./kernel/context.ts";
import { type Ids, randomIds } from "./kernel/ids.ts";
import { createLog, type Log } from "./kernel/log.ts";
import { Metrics } from "./kernel/metrics.ts";
import { Registry } from "./kernel/registry.ts";
import { createSealer } from "./kernel/sealer.ts";
import { createTracer, noTracer, type Tracer } from "./kernel/tracing.ts";
import { createAccounts } from "./rooms/accounts/index.ts";
import { Agents } from "./rooms/agents/index.ts";
import { Billing } from "./rooms/billing/index.ts";
import { Compat, throughRoute } from "./rooms/compat/index.ts";
import { Conversations } from "./rooms/conversations/index.ts";
import { createGroups } from "./rooms/groups/index.ts";
import { surfaces } from "./rooms/index.ts";
import { type Deadlines, Inference, routes as inferenceRoutes } from "./rooms/inference/index.ts";
import { createKeys } from "./rooms/keys/index.ts";
import { createLedger } from "./rooms/ledger/index.ts";
import { Memory } from "./rooms/memory/index.ts";
import { createMetering, estimateTokens, IMAGE_TOKENS } from "./rooms/metering/index.ts";
import { Providers } from "./rooms/providers/index.ts";
import { createRealtime } from "./rooms/realtime/index.ts";
import { Routing } from "./rooms/routing/index.ts";
import { type LocalServer, LocalServers, System } from "./rooms/system/index.ts";
import { Usage } from "./rooms/usage/index.ts";
import { createVideo } from "./rooms/video/index.ts";
import { loadJwtSecret } from "./secrets.ts";
import { openStorage } from "./storage/index.ts";
import { DatabaseLeases } from "./storage/leases.ts";
import { AgentTunnel } from "./transports/agent-tunnel/index.ts";
import { createConsole } from "./transports/console/handler.ts";
import { consoleRoutes } from "./transports/console/routes.ts";
import { documentRoutes } from "./transports/docs/routes.ts";
import { EventsTransport } from "./transports/events/sse.ts";
import { createRpcHttp } from "./transports/rpc/http.ts";
import { RpcRunner } from "./transports/rpc/runner.ts";
import { RpcWebSocket } from "./transports/rpc/websocket.ts";
import { startHttpServer } from "./transports/server.ts";
import { buildHash, VERSION } from "./version.ts";

/** How long a stopping process writes journaled usage to the database; the next start finds the rest. */
const JOURNAL_DRAIN_MS = 10_000;
const JOURNAL_STOP_MS = 1_000;

/** What tests replace: time, randomness, the log, how long upstreams may take, and what is beside the service. */
export interface AppOverrides {
  deadlines?: Partial<Deadlines>;
  clock?: Clock;
  ids?: Ids;
  log?: Log;
  localServers?: readonly LocalServer[];
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

/** Traces go to the configured collector; without one nothing is recorded. */
function openTracer(config: Config, parts: { clock: Clock; log: Log; metrics: Metrics }): Tracer {
  const { otlpEndpoint: endpoint, otlpHeaders: headers, otlpServiceName: serviceName } = config;
  if (endpoint === null) return noTracer;
  const { clock, log, metrics } = parts;
  const dropped = metrics.counter("gateway_spans_dropped_total", "Spans that no collector took in time");
  const onDropped = (count: number) => dropped.add(count);
  return createTracer({ endpoint, headers, serviceName, version: VERSION, clock, log, onDropped });
}

/** Wires the whole service together; the only place that knows every part. */
export async function startApp(config: Config, overrides: AppOverrides = {}): Promise<App> {
  const clock = overrides.clock ?? systemClock;
  const ids = overrides.ids ?? randomIds;
  const log = overrides.log ?? createLog({ level: config.logLevel, format: config.logFormat });
  const metrics = new Metrics();
  const tracer = openTracer(config, { clock, log, metrics });

  const db = await openStorage(config);
  const { bus, limiter, reservations } = await openBus({ redisUrl: config.redisUrl, clock, ids, log });
  const events = new BusEventHub(bus, clock, ids);
  const requests = bus.shared ? new BusRequests({ bus, clock, ids }) : null;

  const jwtSecret = loadJwtSecret(config.jwtSecret, config.dataDir);
  const accounts = createAccounts({
    db,
    bus,
    limiter,
    clock,
    ids,
    jwtSecret,
    adminToken: config.adminToken,
    registrationOpen: config.registrationOpen,
  });
  const ledger = createLedger({ db, bus, clock, ids, pointsPerUsd: config.pointsPerUsd });
  const groups = createGroups({ db, bus, clock, ids, accounts, ledger });
  const usage = new Usage({ db, clock, retentionMonths: config.usageRetentionMonths });
  const { pointsPerUsd, pricingFile, dataDir } = config;
  const billing = await Billing.open({
    db,
    bus,
    clock,
    log,
    usage,
    balances: ledger.balances,
    pointsPerUsd,
    pricingFile,
  }).catch(async (error) => {
    await db.close();
    throw error;
  });
  const metering = createMetering({
    db,
    clock,
    ids,
    log,
    limiter,
    reservations,
    billing,
    usage,
    ledger,
    pointsPerUsd,
    dataDir,
  });
  const providers = new Providers(db, clock);
  const keys = createKeys({ db, bus, clock, ids, groups });
  const conversations = new Conversations({ db, clock, ids });
  const memory = new Memory({ url: config.memoryUrl, bus, clock, log });
  const bridge = new Bridge({ agentUrl: config.bridgeUrl, clock, log });
  const backendDeps = {
    fetch: (url: string, init?: BunFetchRequestInit) => fetch(url, init),
    openOrigin: config.usesHttpProxy ? null : (options: OriginOptions) => new HttpOrigin(options, clock),
    clock,
    ids,
    log,
  };
  const leases = new DatabaseLeases({ db, clock, instance: ids.uuid() });
  const factory = backendFactory(backendDeps, bridge);
  const routing = new Routing({
    db,
    bus,
    clock,
    log,
    leases,
    factory,
    sealer: createSealer(jwtSecret),
  });
  // What is read from now on cannot be changed elsewhere without this instance hearing of it.
  await bus.ready();
  await routing.start();
  const inference = new Inference({
    clock,
    ids,
    log,
    limiter,
    events,
    keys,
    metering,
    routing,
    conversations,
    memory,
    apiRateLimitRpm: config.apiRateLimitRpm,
    countRequest: () => rooms.system.countRequest(),
    onFailure: (failure) => rooms.system.noteFailure(failure),
    deadlines: overrides.deadlines,
    metrics,
    tracer,
  });
  const video = createVideo({ db, bus, events, clock, ids, log, routing, metering, billing });
  const realtime = createRealtime({ requests, events, clock, ids, log, routing, metering, conversations });
  const agents = new Agents({
    db,
    bus,
    events,
    clock,
    ids,
    log,
    backends: routing,
    createPool: (modelId) => new AgentPool({ modelId, deps: backendDeps }),
  });
  const housekeeping = new Housekeeping({
    clock,
    log,
    leases,
    sweeps: {
      "usage rows": usage.sweepRows,
      "refresh tokens": accounts.sweepTokens,
      invitations: groups.invitations.sweep,
      "video payloads": video.sweepPayloads,
    },
  });
  const rooms: Rooms = {
    accounts,
    agents,
    ledger,
    groups,
    keys,
    providers,
    usage,
    billing,
    metering,
    conversations,
    memory,
    routing,
    inference,
    compat: new Compat({
      chat: throughRoute(inferenceRoutes.chatCompletions),
      authenticate: (secret) => keys.authenticate(secret),
      requireApiKey: async (request, requestId) => inference.principal(request, requestId),
      estimateTokens,
      imageTokens: IMAGE_TOKENS,
      clock,
    }),
    video,
    realtime,
    system: new System({
      clock,
      version: VERSION,
      buildHash: buildHash(),
      metrics,
      backends: () => routing.entries,
      localServers: new LocalServers({
        servers: overrides.localServers,
        create: factory.create,
        ownPort: () => server.port,
        routing,
      }),
      figures: {
        agentsOnline: () => agents.agentsOnline(),
        gpuNodes: () => agents.gpuNodes(),
        modelsDeployed: () => agents.modelsDeployed(),
        modelsRoutable: () => routing.modelCount,
        providers: () => providers.count(),
        journal: () => metering.figures,
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

  metrics.gauge("gateway_calls_in_flight", "Calls to upstreams under way", () => inference.callsInFlight);
  metrics.gauge(
    "gateway_usage_journal_rows",
    "Usage rows that wait for the database",
    () => metering.figures.rows,
  );
  metrics.gauge(
    "gateway_usage_journal_bytes",
    "Size of what waits for the database",
    () => metering.figures.bytes,
  );
  metrics.gauge(
    "gateway_usage_journal_stalled_seconds",
    "Time without progress while usage rows wait",
    () => metering.figures.stalled_seconds,
  );
  metrics.gauge("gateway_usage_rows_lost", "Usage rows that no disk would take", () => metering.lostRows);
  metrics.gauge("gateway_holds", "Reservations of requests under way", () => metering.holdCount);

  await bus.ready();
  const server = startHttpServer({
    host: config.host,
    port: config.port,
    reusePort: config.reusePort,
    routes: [
      ...registry.routes,
      ...documentRoutes({ registry, metrics, version: VERSION }),
      ...consoleRoutes({
        registrationIsOpen: () => accounts.registrationIsOpen(),
        firstAccountOnly: config.registrationOpen === null,
      }),
    ],
    fallback: createConsole({ log }),
    rpcHttp: createRpcHttp({ runner, authenticator: accounts, events }),
    rpcSocket: new RpcWebSocket({ runner, registry, authenticator: accounts, clock, ids }),
    events: eventsTransport,
    sockets: [new AgentTunnel({ desk: agents, clock, ids, log })],
    authenticator: accounts,
    rooms,
    ids,
    log,
    clock: systemClock,
    trustedProxies: new Set(config.trustedProxies),
    corsOrigins: config.corsOrigins,
  });

  const close = async (journalDeadlineMs: number) => {
    await inference.close();
    rooms.system.close();
    realtime.closeAll();
    await housekeeping.close();
    await video.stop();
    agents.close();
    routing.close();
    bridge.close();
    await metering.close(journalDeadlineMs);
    billing.close();
    rooms.memory.close();
    requests?.close();
    await leases.releaseAll().catch(() => {});
    await reservations.close();
    await tracer.close();
    await bus.close();
    await db.close();
  };
  return {
    url: `http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${server.port}`,
    port: server.port,
    rooms,
    log,
    async drain() {
      rooms.system.draining = true;
      server.retire();
      await Bun.sleep(config.drainGraceMs);
      const finished = server.stop();
      agents.retire();
      await Promise.race([finished, Bun.sleep(config.drainTimeoutMs)]);
      await server.stop(true);
      await rooms.memory.flush();
      await close(JOURNAL_DRAIN_MS);
    },
    async stop() {
      await server.stop(true);
      await close(JOURNAL_STOP_MS);
    },
  };
}
