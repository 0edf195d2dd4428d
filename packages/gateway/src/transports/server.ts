import type { Server, ServerWebSocket } from "bun";
import {
  type Authenticator,
  type CallContext,
  type Caller,
  callerFrom,
  type Identity,
  type Rooms,
} from "../kernel/context.ts";
import { ServiceError, toRestResponse, toServiceError } from "../kernel/errors.ts";
import { bearerOf, urlParts } from "../kernel/http.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { RouteCall, RouteDefinition } from "../kernel/route.ts";
import { clientIp, RequestSource } from "./client-ip.ts";
import { Cors } from "./cors.ts";
import type { EventsTransport } from "./events/sse.ts";
import { Router } from "./router.ts";
import type { createRpcHttp } from "./rpc/http.ts";
import { type RpcSocketData, type RpcWebSocket, SEND_BUFFER_BYTES_MAX } from "./rpc/websocket.ts";

/** A WebSocket transport beside the RPC plane, e.g. the agents' tunnel. */
export interface SocketTransport {
  path: string;
  /** Data for the new socket, or the refusal; decided before the upgrade. */
  admit(request: Request, query: URLSearchParams): Promise<{ kind: string } | Response>;
  open(socket: ServerWebSocket<never>): void;
  message(socket: ServerWebSocket<never>, message: string | Buffer): void | Promise<void>;
  drain?(socket: ServerWebSocket<never>): void;
  close(socket: ServerWebSocket<never>, code: number, reason: string): void;
}

export interface HttpServerOptions {
  host: string;
  port: number;
  /** Lets several processes listen on one port. */
  reusePort?: boolean;
  routes: readonly RouteDefinition[];
  rpcHttp: ReturnType<typeof createRpcHttp>;
  rpcSocket: RpcWebSocket;
  events: EventsTransport;
  sockets: Readonly<Record<string, SocketTransport>>;
  authenticator: Authenticator;
  rooms: Rooms;
  ids: Ids;
  log: Log;
  trustedProxies: ReadonlySet<string>;
  corsOrigins: readonly string[];
  /** Answers a GET that no route has, e.g. with a page of the console. */
  fallback?: (request: Request, path: string) => Response | Promise<Response> | null;
}

export interface HttpServer {
  port: number;
  /** From now on every answer ends its connection, so that clients go elsewhere before the listener closes. */
  retire(): void;
  /** No new connections; resolves when the open ones are done. With `now` they are broken off. */
  stop(now?: boolean): Promise<void>;
}

type SocketData = RpcSocketData | { kind: string };
type AnySocket = ServerWebSocket<SocketData>;

/** What a route's handler is handed; the query is parsed for those who look at it. */
class RoutedCall implements RouteCall {
  readonly caller: Caller;
  readonly requestId: string;
  readonly log: Log;
  readonly rooms: Rooms;
  readonly request: Request;
  readonly path: Record<string, string>;
  readonly #search: string;

  constructor(
    { caller, requestId, log, rooms }: CallContext,
    { request, path, search }: { request: Request; path: Record<string, string>; search: string },
  ) {
    this.caller = caller;
    this.requestId = requestId;
    this.log = log;
    this.rooms = rooms;
    this.request = request;
    this.path = path;
    this.#search = search;
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.#search);
  }
}

const REQUEST_BODY_BYTES_MAX = 34 * 1024 * 1024;
const SOCKET_MESSAGE_BYTES_MAX = 8 * 1024 * 1024;
const NOBODY: Identity = { actor: null, adminToken: false };
const RPC_METHODS: readonly string[] = ["GET", "POST"];

/** The one HTTP listener: routes, the RPC plane, the event streams and the WebSockets. */
export function startHttpServer(options: HttpServerOptions): HttpServer {
  const { rpcHttp, rpcSocket, events, authenticator, rooms, ids, log } = options;
  const router = new Router(options.routes);
  const cors = new Cors(options.corsOrigins);

  async function runRoute(
    request: Request,
    server: Server<SocketData>,
    path: string,
    search: string,
  ): Promise<Response> {
    const requestId = ids.ordered();
    const verb = request.method === "HEAD" ? "GET" : request.method;
    const found = router.find(verb, path);
    try {
      if (!found) return await notFound(request, path, requestId);
      const { route } = found;
      const identity =
        route.auth === "admin_token" ? await authenticator.identify(bearerOf(request)) : NOBODY;
      if (route.auth === "admin_token" && !identity.adminToken)
        throw new ServiceError("admin_token_required", "admin access required");
      const caller = callerFrom(identity, sourceOf(request, server));
      const call = new RoutedCall({ caller, requestId, log, rooms }, { request, path: found.path, search });
      const handled = route.handler(call);
      const result = handled instanceof Promise ? await handled : handled;
      if (result instanceof Response) return result;
      return Response.json(result, { headers: { "x-request-id": requestId } });
    } catch (error) {
      const failure = toServiceError(error);
      if (failure.kind === "internal") log.error("route failed", { request_id: requestId, path, error });
      return toRestResponse(failure, requestId);
    }
  }

  async function notFound(request: Request, path: string, requestId: string): Promise<Response> {
    const methods = path === "/api/rpc" ? RPC_METHODS : router.methodsOf(path);
    if (methods.length === 0 && (request.method === "GET" || request.method === "HEAD")) {
      const page = await options.fallback?.(request, path);
      page?.headers.set("x-request-id", requestId);
      if (page) return page;
    }
    const error = methods.length
      ? new ServiceError("method_not_allowed", `${path} takes ${methods.join(", ")}`)
      : new ServiceError("route_not_found", `No such path: ${request.method} ${path.slice(0, 200)}`);
    const response = toRestResponse(error, requestId);
    if (methods.length) response.headers.set("allow", methods.join(", "));
    return response;
  }

  const expectedUpgrade = (text: string) =>
    new Response(text, { status: 426, headers: { upgrade: "websocket", "x-request-id": ids.ordered() } });

  async function upgradeRpc(
    request: Request,
    server: Server<SocketData>,
    query: URLSearchParams,
  ): Promise<Response | undefined> {
    const ip = clientIp(request, server, options.trustedProxies);
    const data = await rpcSocket.admit(query.get("token") ?? bearerOf(request), ip);
    if (server.upgrade(request, { data })) return undefined;
    return expectedUpgrade("Expected a WebSocket upgrade; POST JSON-RPC requests instead.\n");
  }

  async function upgradeOther(
    transport: SocketTransport,
    request: Request,
    server: Server<SocketData>,
    query: URLSearchParams,
  ) {
    const admitted = await transport.admit(request, query);
    if (admitted instanceof Response) return admitted;
    if (server.upgrade(request, { data: admitted })) return undefined;
    return expectedUpgrade("Expected a WebSocket upgrade.\n");
  }

  const sourceOf = (request: Request, server: Server<SocketData>) =>
    new RequestSource(request, server, options.trustedProxies);

  /** Not async itself: each layer of promises costs, and this one is around every request. */
  function handle(request: Request, server: Server<SocketData>): Promise<Response | undefined> {
    const { path: asked, search } = urlParts(request.url);
    // Clients whose base URL already ends in /v1 often add it once more.
    const path = asked.startsWith("/v1/v1/") ? asked.slice(3) : asked;
    if (path === "/api/rpc") {
      if (request.method === "POST") {
        return rpcHttp(request, { requestId: ids.ordered(), source: sourceOf(request, server) });
      }
      if (request.method === "GET") return upgradeRpc(request, server, new URLSearchParams(search));
    }
    if (path === "/api/rpc/events" && request.method === "GET") {
      return events.handle(request, {
        query: new URLSearchParams(search),
        requestId: ids.ordered(),
      });
    }
    for (const transport of socketTransports) {
      if (transport.path === path && request.method === "GET") {
        return upgradeOther(transport, request, server, new URLSearchParams(search));
      }
    }
    return runRoute(request, server, path, search);
  }

  const socketTransports = Object.values(options.sockets);
  const of = (socket: AnySocket) => options.sockets[socket.data.kind] as SocketTransport;
  let answer = cors.enabled
    ? async (request: Request, server: Server<SocketData>) =>
        cors.preflight(request) ?? cors.decorate(request, await handle(request, server))
    : handle;
  const server = Bun.serve<SocketData, never>({
    hostname: options.host,
    port: options.port,
    reusePort: options.reusePort ?? false,
    // Streams may be silent for minutes; our own deadlines decide, not the listener's.
    idleTimeout: 0,
    maxRequestBodySize: REQUEST_BODY_BYTES_MAX,
    development: false,
    fetch: (request, server) => answer(request, server),
    error(error) {
      log.error("request failed outside every handler", { error });
      return toRestResponse(toServiceError(error), ids.uuid());
    },
    websocket: {
      idleTimeout: 0,
      maxPayloadLength: SOCKET_MESSAGE_BYTES_MAX,
      backpressureLimit: SEND_BUFFER_BYTES_MAX * 4,
      open: (socket) =>
        socket.data.kind === "rpc"
          ? rpcSocket.open(socket as ServerWebSocket<RpcSocketData>)
          : of(socket).open(socket as never),
      message: (socket, message) =>
        socket.data.kind === "rpc"
          ? rpcSocket.message(socket as ServerWebSocket<RpcSocketData>, message)
          : of(socket).message(socket as never, message),
      drain: (socket) => {
        if (socket.data.kind !== "rpc") of(socket).drain?.(socket as never);
      },
      close: (socket, code, reason) =>
        socket.data.kind === "rpc"
          ? rpcSocket.close(socket as ServerWebSocket<RpcSocketData>)
          : of(socket).close(socket as never, code, reason),
    },
  });
  return {
    port: server.port!,
    retire() {
      const before = answer;
      answer = async (request, server) => {
        const response = await before(request, server);
        response?.headers.set("connection", "close");
        return response;
      };
    },
    stop: (now) => server.stop(now),
  };
}
