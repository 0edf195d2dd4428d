import { bearerOf, type HttpRequest, type Networks, Reply, Router, replyOf } from "@model-gateway/wire/http";
import {
  type AnyReply,
  type Certificate,
  connectionsByOpenFiles,
  type IncomingRequest,
  Listener,
  SocketReply,
} from "@model-gateway/wire/server";
import type { SocketHandlers } from "@model-gateway/wire/websocket";
import { withoutBase } from "../kernel/base-path.ts";
import type { Clock } from "../kernel/clock.ts";
import type { CallSource } from "../kernel/context.ts";
import { isOurs, ServiceError, toRestReply, toServiceError } from "../kernel/errors.ts";
import type { Ids } from "../kernel/ids.ts";
import type { AnyRoute } from "../kernel/route.ts";
import { Cors } from "./cors.ts";
import type { EventsTransport } from "./events/sse.ts";
import { type Hosts, RequestSource } from "./hosts.ts";
import { RouteRunner, type RouteRunnerOptions } from "./rest/runner.ts";
import { type createRpcHttp, RPC_BODY_BYTES_MAX } from "./rpc/http.ts";
import { type RpcWebSocket, SEND_BUFFER_BYTES_MAX } from "./rpc/websocket.ts";

/** A WebSocket transport besides JSON-RPC, such as the agents' tunnel. */
export interface SocketTransport<Data> extends SocketHandlers<Data> {
  path: string;
  protocol?: string;
  /** Data for the new socket, or the refusal, before the upgrade. */
  admit(request: HttpRequest, query: URLSearchParams, source: CallSource): Promise<Data | Reply>;
}

interface HttpServerOptions extends RouteRunnerOptions {
  host: string;
  port: number;
  reusePort?: boolean;
  certificate?: () => Certificate;
  /** Null: as many as the limit of open files allows. */
  connectionsMax: number | null;
  connectionRefused(): void;
  routes: readonly AnyRoute[];
  rpcHttp: ReturnType<typeof createRpcHttp>;
  rpcSocket: RpcWebSocket;
  events: EventsTransport;
  // biome-ignore lint/suspicious/noExplicitAny: each transport knows the data of its own sockets
  sockets: readonly SocketTransport<any>[];
  ids: Ids;
  /** For network deadlines: real time, even if tests give the rooms another clock. */
  clock: Clock;
  trustedProxies: Networks;
  corsOrigins: readonly string[];
  hosts: Hosts;
  basePath: string;
  /** Answers a GET without a route, for example with a page of the console. */
  fallback(request: HttpRequest, path: string): Promise<Response | null> | null;
}

const SOCKET_MESSAGE_BYTES_MAX = 8 * 1024 * 1024;
const STRANGERS_SHARE = 1 / 2;
const STRANGERS_OF_ONE_ADDRESS_SHARE = 1 / 4;
const CONNECTIONS_MAX_HINT =
  "raise the limit of open files and SERVICE_CONNECTIONS_MAX, or start more instances";
const RPC_METHODS: readonly string[] = ["GET", "POST"];

const CHALLENGE = { "www-authenticate": "Bearer", "x-should-retry": "false" };

/** Adds to a 401 how to sign in, and that client libraries need not retry. */
function challenged(answer: AnyReply): AnyReply {
  if (!(answer instanceof Reply) || answer.head.status !== 401) return answer;
  const head = { ...answer.head, headers: { ...CHALLENGE, ...answer.head.headers } };
  return new Reply(head, answer.body, answer.release);
}

class Dispatcher {
  readonly #options: HttpServerOptions;
  readonly #router: Router<AnyRoute>;
  readonly #runner: RouteRunner;
  readonly #cors: Cors;

  constructor(options: HttpServerOptions, cors: Cors) {
    this.#options = options;
    this.#router = new Router(options.routes);
    this.#runner = new RouteRunner(options);
    this.#cors = cors;
  }

  async handle(request: IncomingRequest): Promise<AnyReply> {
    try {
      return challenged(await this.#route(request));
    } catch (error) {
      return this.#failed(error);
    }
  }

  #route(request: IncomingRequest): AnyReply | Promise<AnyReply> {
    const { basePath, ids, rpcHttp, events, sockets } = this.#options;
    const { method } = request;
    if (basePath !== "" && request.path === basePath) {
      // Relative links of the console need the slash.
      const headers = { location: `${basePath}/` };
      return new Reply({ status: 308, contentType: "", requestId: ids.ordered(), headers }, "");
    }
    const whole = withoutBase(request.path, basePath);
    // Clients whose base URL ends with /v1 often add it twice.
    const path = whole.startsWith("/v1/v1/") ? whole.slice(3) : whole;
    if (path === "/api/rpc") {
      const refusal = this.#refusalOf;
      if (method === "POST")
        return rpcHttp(request, { requestId: ids.ordered(), source: this.#sourceOf(request), refusal });
      if (method === "GET") return this.#upgradeRpc(request);
    }
    if (method === "GET") {
      if (path === "/api/rpc/events") {
        const query = new URLSearchParams(request.search);
        return events.handle(request, { query, requestId: ids.ordered() });
      }
      for (const transport of sockets) {
        if (transport.path === path) return this.#upgradeOther(transport, request);
      }
    }
    return this.#runRoute(request, path);
  }

  #runRoute(request: IncomingRequest, path: string): AnyReply | Promise<AnyReply> {
    const requestId = this.#options.ids.ordered();
    const found = this.#router.find(request.method === "HEAD" ? "GET" : request.method, path);
    if (!found) return this.#notFound(request, path, requestId);
    const source = this.#sourceOf(request);
    return this.#runner.run(found.route, { request, path: found.path, requestId, source });
  }

  async #notFound(request: HttpRequest, path: string, requestId: string): Promise<AnyReply> {
    const methods = path === "/api/rpc" ? RPC_METHODS : this.#router.methodsOf(path);
    if (methods.length === 0 && (request.method === "GET" || request.method === "HEAD")) {
      const page = await this.#options.fallback(request, path);
      page?.headers.set("x-request-id", requestId);
      if (page) return replyOf(page);
    }
    const error = methods.length
      ? new ServiceError("method_not_allowed", `${path} takes ${methods.join(", ")}`)
      : new ServiceError("route_not_found", `No such path: ${request.method} ${path.slice(0, 200)}`);
    return toRestReply(error, requestId, methods.length ? { allow: methods.join(", ") } : {});
  }

  async #upgradeRpc(request: IncomingRequest): Promise<AnyReply> {
    const { ids, rpcSocket } = this.#options;
    const query = new URLSearchParams(request.search);
    const data = await rpcSocket.admit(query.get("token") ?? bearerOf(request), this.#sourceOf(request));
    if (!data.anonymous) request.vouch();
    else {
      const refusal = this.#refusalOf(request);
      if (refusal) return toRestReply(refusal, ids.ordered());
    }
    return new SocketReply(ids.ordered(), data, rpcSocket, {
      hint: "Expected a WebSocket upgrade; POST JSON-RPC requests instead.",
      // No more than the calls of an anonymous socket may hold together.
      ...(data.anonymous && { messageBytesMax: RPC_BODY_BYTES_MAX }),
    });
  }

  async #upgradeOther(transport: SocketTransport<unknown>, request: IncomingRequest): Promise<AnyReply> {
    const query = new URLSearchParams(request.search);
    const admitted = await transport.admit(request, query, this.#sourceOf(request));
    if (admitted instanceof Reply) return admitted;
    request.vouch();
    return new SocketReply(this.#options.ids.ordered(), admitted, transport, {
      protocol: transport.protocol,
    });
  }

  #sourceOf(request: IncomingRequest): RequestSource {
    return new RequestSource(request, this.#options.trustedProxies);
  }

  #refusalOf = (request: HttpRequest) => this.#options.hosts.refusal(request) ?? this.#cors.refusal(request);

  #failed(error: unknown): AnyReply {
    const failure = toServiceError(error);
    if (isOurs(failure)) this.#options.log.error("unhandled error in a request", { error });
    return toRestReply(failure, this.#options.ids.uuid());
  }
}

/** Serves routes, JSON-RPC, event streams and WebSockets on one listener. */
export function startHttpServer(options: HttpServerOptions): Listener {
  const { host, port, reusePort = false, certificate, clock, ids, log, trustedProxies } = options;
  const cors = new Cors(options.corsOrigins);
  const dispatcher = new Dispatcher(options, cors);
  const connectionsMax = options.connectionsMax ?? connectionsByOpenFiles();
  return new Listener({
    host,
    port,
    reusePort,
    ...(certificate && { certificate }),
    connectionsMax,
    strangers: {
      max: Math.ceil(connectionsMax * STRANGERS_SHARE),
      perAddressMax: Math.ceil(connectionsMax * STRANGERS_OF_ONE_ADDRESS_SHARE),
      isShared: (address) => trustedProxies.has(address),
    },
    connectionsMaxHint: CONNECTIONS_MAX_HINT,
    refused: options.connectionRefused,
    handle: cors.enabled
      ? async (request) => cors.preflight(request) ?? cors.decorate(request, await dispatcher.handle(request))
      : (request) => dispatcher.handle(request),
    newRequestId: () => ids.ordered(),
    messageBytesMax: SOCKET_MESSAGE_BYTES_MAX,
    bufferBytesMax: SEND_BUFFER_BYTES_MAX * 4,
    clock,
    log,
  });
}
