import { Networks } from "@model-gateway/wire/http";
import type { Listener } from "@model-gateway/wire/server";
import type { Bus } from "../bus/contract.ts";
import type { Config } from "../config.ts";
import { basePathOf } from "../kernel/base-path.ts";
import { systemClock } from "../kernel/clock.ts";
import { FailedTries, TooManyKeys } from "../kernel/failed-tries.ts";
import { Registry } from "../kernel/registry.ts";
import { buildHash, VERSION } from "../kernel/version.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Foundation } from "../rooms/foundation.ts";
import { surfaces } from "../rooms/index.ts";
import { payerOf } from "../rooms/keys/index.ts";
import { AgentTunnel } from "../transports/agent-tunnel/index.ts";
import { CertificateFiles } from "../transports/certificate-files.ts";
import { createConsole } from "../transports/console/handler.ts";
import { consoleRoutes } from "../transports/console/routes.ts";
import { documentRoutes } from "../transports/docs/routes.ts";
import { EventsTransport } from "../transports/events/sse.ts";
import { Hosts } from "../transports/hosts.ts";
import { RealtimeSocket } from "../transports/realtime/index.ts";
import { Gate } from "../transports/rest/runner.ts";
import { createRpcHttp } from "../transports/rpc/http.ts";
import { RpcRunner } from "../transports/rpc/runner.ts";
import { RpcWebSocket } from "../transports/rpc/websocket.ts";
import { startHttpServer } from "../transports/server.ts";
import type { Life } from "./life.ts";
import type { OpenRooms } from "./rooms.ts";
import type { WorkerPlace } from "./workers/messages.ts";
import { workerMetrics } from "./workers/metrics.ts";

export interface TransportOptions {
  config: Config;
  life: Life;
  foundation: Foundation;
  rooms: OpenRooms;
  worker: WorkerPlace | null;
}

export interface Transports {
  server: Listener;
  events: EventsTransport;
}

function publishFigures(
  metrics: Metrics,
  { metering, inference, routing }: OpenRooms,
  { events, bus, config }: { events: EventsTransport; bus: Bus; config: Config },
) {
  const build = { labels: { version: VERSION, build: buildHash() }, value: 1 };
  const backendsUp = () =>
    routing.entries.flatMap(({ config: { name, enabled }, state }) =>
      enabled === false ? [] : { labels: { backend: name }, value: state === "Unhealthy" ? 0 : 1 },
    );
  const figures: [name: string, help: string, read: Parameters<Metrics["gauge"]>[2]][] = [
    ["gateway_build_info", "Version and commit; always 1", () => [build]],
    ["gateway_backend_up", "Whether the backend answered its last probe", backendsUp],
    ["process_resident_memory_bytes", "Memory in use", () => process.memoryUsage.rss()],
    ["gateway_event_subscribers", "Open notification streams", () => events.subscriberCount],
    ["gateway_calls_in_flight", "Upstream calls in progress", () => inference.callsInFlight],
    ["gateway_usage_journal_rows", "Usage rows that wait for the database", () => metering.figures.rows],
    [
      "gateway_usage_journal_bytes",
      "Bytes of usage that wait for the database",
      () => metering.figures.bytes,
    ],
    [
      "gateway_usage_journal_stalled_seconds",
      "Time without progress while usage rows wait",
      () => metering.figures.stalled_seconds,
    ],
    [
      "gateway_usage_rows_lost_total",
      "Usage rows lost because the journal could not be written",
      () => metering.lostRows,
    ],
    ["gateway_holds", "Holds of requests in progress", () => metering.holdCount],
    [
      "gateway_implausible_usage_total",
      "Answers with implausible reported usage since the start",
      () => routing.suspicions,
    ],
  ];
  if (config.redisUrl !== null)
    figures.push(["gateway_redis_up", "Whether Redis answers", () => (bus.connected ? 1 : 0)]);
  for (const [name, help, read] of figures) metrics.gauge(name, help, read);
}

function openCertificate(
  { tlsCert: certFile, tlsKey: keyFile }: Config,
  life: Life,
  { clock, log, metrics }: Foundation,
): CertificateFiles | null {
  if (certFile === null || keyFile === null) return null;
  const files = new CertificateFiles({ certFile, keyFile, clock, log });
  life.opened("TLS certificate", () => files.close());
  metrics.gauge(
    "gateway_tls_certificate_expires_timestamp_seconds",
    "When the TLS certificate in use expires",
    () => files.expiresAtMs / 1000,
  );
  return files;
}

function openGate(config: Config, { clock, bus, counter }: Foundation, rooms: OpenRooms, tries: FailedTries) {
  return new Gate({
    authenticator: rooms.accounts,
    keys: rooms.keys,
    counter,
    tries,
    keyTries: new FailedTries(clock, bus, "failed-key-tries", TooManyKeys),
    settings: config,
    tierRates: (principal) => rooms.metering.ratesOf(payerOf(principal)),
  });
}

/** Routes that belong to no room: documents, metrics, and what the console asks before anybody signs in. */
function pageRoutes(
  { config, foundation: { metrics, instances }, rooms: { accounts, sso }, worker }: TransportOptions,
  registry: Registry,
  hosts: Hosts,
) {
  return [
    ...documentRoutes({
      registry,
      metricsText: worker && instances ? workerMetrics(metrics, instances, worker) : () => metrics.text(),
      metricsToken: config.metricsToken,
      isSecure: config.tlsCert !== null,
    }),
    ...consoleRoutes({
      hosts,
      needsSetupLink: (source) => accounts.needsSetupLink(source),
      registrationIsOpen: () => accounts.registrationIsOpen(),
      firstAccountOnly: () => config.registrationOpen === null,
      passwordSignIn: config.passwordSignIn,
      provider: sso.label,
    }),
  ];
}

/** Opens the listener last: from then on the service takes requests. */
export function openTransports(options: TransportOptions): Transports {
  const { config, life, foundation, rooms } = options;
  const { bus, clock, ids, log, metrics } = foundation;
  const { accounts, audit } = rooms;
  const registry = new Registry(surfaces);
  const tries = new FailedTries(clock, bus);
  const record = (surface: string, requestId = ids.ordered()) => rooms.requests.open(surface, requestId);
  const calls = metrics.counter("gateway_rpc_calls_total", "JSON-RPC calls by method and outcome");
  const runner = new RpcRunner({ registry, rooms, log, calls, audit, record });
  const events = new EventsTransport({ ...foundation, authenticator: accounts });
  life.opened("notification streams", () => events.close());
  publishFigures(metrics, rooms, { events, bus, config });
  const hosts = new Hosts(config);
  const gate = openGate(config, foundation, rooms, tries);
  const nodeTries = new FailedTries(clock, bus, "failed-node-tries");
  const refused = metrics.counter(
    "gateway_connections_refused_total",
    "Connections refused because of the connection limit",
  );
  const certificate = openCertificate(config, life, foundation);
  const basePath = basePathOf(config.publicUrl);
  const signedIn = { ...foundation, authenticator: accounts, tries, runner };
  const server = startHttpServer({
    ...config,
    ...(certificate && { certificate: () => certificate.current }),
    connectionRefused: () => refused.add(),
    routes: [...registry.routes, ...pageRoutes(options, registry, hosts)],
    fallback: createConsole({ log, basePath }),
    basePath,
    rpcHttp: createRpcHttp(signedIn),
    rpcSocket: new RpcWebSocket(signedIn),
    events,
    sockets: [
      new AgentTunnel({ ...foundation, desk: rooms.agents, tries: nodeTries }),
      new RealtimeSocket({ desk: rooms.realtime, gate, ids, record }),
    ],
    gate,
    keyRefused: (principal, failure) => rooms.keys.refused(principal, failure),
    audit,
    record,
    rooms,
    ids,
    log,
    clock: systemClock,
    trustedProxies: new Networks(config.trustedProxies),
    hosts,
  });
  life.opened("listener", () => server.stop(true));
  metrics.gauge("gateway_connections", "Open connections of clients", () => server.connectionCount);
  return { server, events };
}
