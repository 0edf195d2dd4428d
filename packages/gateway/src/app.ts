import type { OriginOptions } from "@model-gateway/wire/client";
import { HttpOrigin } from "@model-gateway/wire/client";
import type { Listener } from "@model-gateway/wire/server";
import { AgentPool } from "./backends/agent-node/index.ts";
import { Bridge } from "./backends/bridge/index.ts";
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
import { Conversations } from "./rooms/conversations/index.ts";
import { createGroups } from "./rooms/groups/index.ts";
import { surfaces } from "./rooms/index.ts";
import { type Deadlines, Inference } from "./rooms/inference/index.ts";
import { createKeys, payerOf } from "./rooms/keys/index.ts";
import { createLedger } from "./rooms/ledger/index.ts";
import { Memory } from "./rooms/memory/index.ts";
import { createMetering } from "./rooms/metering/index.ts";
import { Providers } from "./rooms/providers/index.ts";
import { createRealtime } from "./rooms/realtime/index.ts";
import { Routing } from "./rooms/routing/index.ts";
import { type LocalServer, LocalServers, System } from "./rooms/system/index.ts";
import { Usage } from "./rooms/usage/index.ts";
import { createVideo } from "./rooms/video/index.ts";
import { loadJwtSecret } from "./secrets.ts";
import { watchSigning } from "./signing-watch.ts";
import { openStorage } from "./storage/index.ts";
import { DatabaseLeases } from "./storage/leases.ts";
import { AgentTunnel } from "./transports/agent-tunnel/index.ts";
import { createConsole } from "./transports/console/handler.ts";
import { consoleRoutes } from "./transports/console/routes.ts";
import { documentRoutes } from "./transports/docs/routes.ts";
import { EventsTransport } from "./transports/events/sse.ts";
import { Gate } from "./transports/rest/gate.ts";
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

/** What everything stands on. */
async function openFoundation(config: Config, overrides: AppOverrides) {
  const clock = overrides.clock ?? systemClock;
  const ids = overrides.ids ?? randomIds;
  const log = overrides.log ?? createLog({ level: config.logLevel, format: config.logFormat });
  const metrics = new Metrics();
  const tracer = openTracer(config, { clock, log, metrics });
  const db = await openStorage(config);
  const { bus, limiter, reservations } = await openBus({ redisUrl: config.redisUrl, clock, ids, log });
  const jwtSecret = loadJwtSecret(config.jwtSecret, config.dataDir);
  await watchSigning({ bus, log, secret: jwtSecret });
  return {
    clock,
    ids,
    log,
    metrics,
    tracer,
    db,
    bus,
    limiter,
    reservations,
    events: new BusEventHub(bus, clock, ids),
    /** Questions to other instances; null where there are none. */
    requests: bus.shared ? new BusRequests({ bus, clock, ids }) : null,
    leases: new DatabaseLeases({ db, clock, instance: ids.uuid() }),
    jwtSecret,
  };
}
type Foundation = Awaited<ReturnType<typeof openFoundation>>;

/** Who someone is, and what they may spend. */
async function openAccounts(config: Config, foundation: Foundation) {
  const { db, bus, limiter, clock, ids, log, jwtSecret, reservations } = foundation;
  const { adminToken, registrationOpen, pointsPerUsd, pricingFile, dataDir } = config;
  const accounts = createAccounts({ db, bus, limiter, clock, ids, jwtSecret, adminToken, registrationOpen });
  const ledger = createLedger({ db, bus, clock, ids, pointsPerUsd });
  const usage = new Usage({ db, clock, retentionMonths: config.usageRetentionMonths });
  const { balances } = ledger;
  const billing = await Billing.open({ db, bus, clock, log, usage, balances, pointsPerUsd, pricingFile });
  const money = { limiter, reservations, billing, usage, ledger, pointsPerUsd };
  const metering = createMetering({ db, clock, ids, log, dataDir, ...money });
  const groups = createGroups({ db, bus, clock, ids, accounts, ledger, metering });
  const keys = createKeys({ db, bus, clock, ids, groups });
  return { accounts, ledger, groups, usage, billing, metering, keys };
}
type Accounts = Awaited<ReturnType<typeof openAccounts>>;

/** Backends of every kind, and the choice among them. */
async function openRouting(config: Config, { db, bus, clock, ids, log, leases, jwtSecret }: Foundation) {
  const bridge = new Bridge({ agentUrl: config.bridgeUrl, clock, log });
  const backendDeps = {
    fetch: (url: string, init?: BunFetchRequestInit) => fetch(url, init),
    openOrigin: config.usesHttpProxy ? null : (options: OriginOptions) => new HttpOrigin(options, clock),
    clock,
    ids,
    log,
  };
  const factory = backendFactory(backendDeps, bridge);
  const routing = new Routing({ db, bus, clock, log, leases, factory, sealer: createSealer(jwtSecret) });
  // What is read from now on cannot be changed elsewhere without this instance hearing of it.
  await bus.ready();
  await routing.start();
  return { bridge, backendDeps, factory, routing };
}
type RoutingParts = Awaited<ReturnType<typeof openRouting>>;

interface RoomParts {
  config: Config;
  overrides: AppOverrides;
  foundation: Foundation;
  people: Accounts;
  backends: RoutingParts;
  /** Known once the listener is open. */
  ownPort: () => number;
}

function openRooms({ config, overrides, foundation, people, backends, ownPort }: RoomParts): Rooms {
  const { db, bus, events, requests, clock, ids, log, metrics, tracer } = foundation;
  const { metering, billing } = people;
  const { routing, factory, backendDeps } = backends;
  const conversations = new Conversations({ db, clock, ids });
  const memory = new Memory({ url: config.memoryUrl, bus, clock, log });
  const inference = new Inference({
    clock,
    ids,
    log,
    events,
    metering,
    billing,
    routing,
    conversations,
    memory,
    countRequest: () => rooms.system.countRequest(),
    onFailure: (failure) => rooms.system.noteFailure(failure),
    deadlines: overrides.deadlines,
    metrics,
    tracer,
  });
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
  const providers = new Providers(db, clock);
  const system = new System({
    clock,
    version: VERSION,
    buildHash: buildHash(),
    metrics,
    backends: () => routing.entries,
    localServers: new LocalServers({
      servers: overrides.localServers,
      create: factory.create,
      ownPort,
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
  });
  const rooms: Rooms = {
    ...people,
    agents,
    providers,
    conversations,
    memory,
    routing,
    inference,
    video: createVideo({ db, bus, events, clock, ids, log, routing, metering, billing }),
    realtime: createRealtime({
      requests,
      events,
      clock,
      ids,
      log,
      routing,
      metering,
      billing,
      conversations,
    }),
    system,
  };
  return rooms;
}

interface Watched extends Pick<Accounts, "metering">, Pick<Rooms, "inference" | "routing"> {
  events: EventsTransport;
}

function publishFigures(metrics: Metrics, { metering, inference, routing, events }: Watched): void {
  const figures: readonly [name: string, help: string, read: () => number][] = [
    ["gateway_event_subscribers", "Open notification streams", () => events.subscriberCount],
    ["gateway_calls_in_flight", "Calls to upstreams under way", () => inference.callsInFlight],
    ["gateway_usage_journal_rows", "Usage rows that wait for the database", () => metering.figures.rows],
    ["gateway_usage_journal_bytes", "Size of what waits for the database", () => metering.figures.bytes],
    [
      "gateway_usage_journal_stalled_seconds",
      "Time without progress while usage rows wait",
      () => metering.figures.stalled_seconds,
    ],
    ["gateway_usage_rows_lost", "Usage rows that no disk would take", () => metering.lostRows],
    ["gateway_holds", "Reservations of requests under way", () => metering.holdCount],
    [
      "gateway_implausible_usage",
      "Answers whose reported usage the model cannot have had, since the start",
      () => routing.suspicions,
    ],
  ];
  for (const [name, help, read] of figures) metrics.gauge(name, help, read);
}

interface TransportParts extends Pick<RoomParts, "config" | "foundation" | "people"> {
  rooms: Rooms;
}

interface Transports {
  server: Listener;
  events: EventsTransport;
}

/** Opens the listener: from here on the service is heard. */
function startTransports({ config, foundation, people, rooms }: TransportParts): Transports {
  const { events, limiter, clock, ids, log, metrics } = foundation;
  const { agents, inference } = rooms;
  const { accounts, metering } = people;
  const registry = new Registry(surfaces);
  const calls = metrics.counter("gateway_rpc_calls_total", "JSON-RPC calls by method and outcome");
  const runner = new RpcRunner({ registry, rooms, log, calls });
  const eventsTransport = new EventsTransport({ events, authenticator: accounts, clock });
  publishFigures(metrics, { metering, inference, routing: rooms.routing, events: eventsTransport });
  const refused = metrics.counter(
    "gateway_connections_refused_total",
    "Connections turned away because there were too many",
  );
  const server = startHttpServer({
    host: config.host,
    port: config.port,
    reusePort: config.reusePort,
    connectionsMax: config.connectionsMax,
    connectionRefused: () => refused.add(),
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
    gate: new Gate({
      authenticator: accounts,
      keys: rooms.keys,
      limiter,
      apiRateLimitRpm: config.apiRateLimitRpm,
      checkTierRate: (principal) => metering.checkRate(payerOf(principal)),
    }),
    rooms,
    ids,
    log,
    clock: systemClock,
    trustedProxies: new Set(config.trustedProxies),
    corsOrigins: config.corsOrigins,
  });
  metrics.gauge("gateway_connections", "Open connections of clients", () => server.connectionCount);
  return { server, events: eventsTransport };
}

interface RunningParts extends TransportParts, Transports {
  bridge: Bridge;
  housekeeping: Housekeeping;
}

class RunningApp implements App {
  readonly url: string;
  readonly port: number;
  readonly rooms: Rooms;
  readonly log: Log;

  constructor(readonly parts: RunningParts) {
    const { config, server, rooms, foundation } = parts;
    const host = config.host.includes(":") ? `[${config.host}]` : config.host;
    this.port = server.port;
    this.url = `http://${host}:${server.port}`;
    this.rooms = rooms;
    this.log = foundation.log;
  }

  async drain(): Promise<void> {
    const { server, events, config, foundation } = this.parts;
    const { system, agents, memory, inference, realtime } = this.rooms;
    system.draining = true;
    server.retire();
    await Bun.sleep(config.drainGraceMs);
    const finished = server.stop();
    agents.retire();
    // What other instances are at is not known here.
    const { shared } = foundation.bus;
    events.retire(() => shared || inference.callsInFlight > 0 || realtime.sessionCount > 0);
    await Promise.race([finished, Bun.sleep(config.drainTimeoutMs)]);
    await server.stop(true);
    await memory.flush();
    await this.#close(JOURNAL_DRAIN_MS);
  }

  async stop(): Promise<void> {
    await this.parts.server.stop(true);
    await this.#close(JOURNAL_STOP_MS);
  }

  /** From what makes work to what the work needs. */
  async #close(journalDeadlineMs: number): Promise<void> {
    const { foundation, people, bridge, housekeeping } = this.parts;
    const { requests, leases, reservations, tracer, bus, db } = foundation;
    const { metering, billing } = people;
    const { inference, system, realtime, video, agents, routing, memory } = this.rooms;
    await inference.close();
    system.close();
    realtime.closeAll();
    await housekeeping.close();
    await video.stop();
    agents.close();
    routing.close();
    bridge.close();
    await metering.close(journalDeadlineMs);
    billing.close();
    memory.close();
    requests?.close();
    await leases.releaseAll().catch(() => {});
    await reservations.close();
    await tracer.close();
    await bus.close();
    await db.close();
  }
}

/** Wires the whole service together; the only place that knows every part. */
export async function startApp(config: Config, overrides: AppOverrides = {}): Promise<App> {
  const foundation = await openFoundation(config, overrides);
  const { db, bus, clock, log, leases } = foundation;
  const people = await openAccounts(config, foundation).catch(async (error) => {
    await db.close();
    throw error;
  });
  const backends = await openRouting(config, foundation);
  const ownPort = () => transports.server.port;
  const rooms = openRooms({ config, overrides, foundation, people, backends, ownPort });
  const housekeeping = new Housekeeping({
    clock,
    log,
    leases,
    sweeps: {
      "usage rows": rooms.usage.sweepRows,
      "refresh tokens": rooms.accounts.sweepTokens,
      invitations: rooms.groups.invitations.sweep,
      "video payloads": rooms.video.sweepPayloads,
    },
  });
  await bus.ready();
  await rooms.video.start();
  const parts = { config, foundation, people, rooms };
  const transports = startTransports(parts);
  const { bridge } = backends;
  return new RunningApp({ ...parts, ...transports, bridge, housekeeping });
}
