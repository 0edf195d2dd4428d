import { ConnectionError, RestError, restErrorOf } from "./errors.ts";
import type { Notifications } from "./notifications.gen.ts";
import type { Routes } from "./routes.gen.ts";
import type { Fetch } from "./rpc.ts";
import { sseData } from "./sse.ts";

export type RouteName = keyof Routes;
export type RouteAnswer<R extends RouteName> = Routes[R]["answer"];
export type RouteBody<R extends RouteName> = Routes[R] extends { body: infer Body } ? Body : undefined;

type Chat = Routes["POST /v1/chat/completions"];
export type ChatRequest = Chat["body"];
export type ChatMessage = ChatRequest["messages"][number];
export type ChatCompletion = Chat["answer"];
export type ChatChunk = Chat["event"];
export type ChatUsage = ChatCompletion["usage"];
export type ToolCall = NonNullable<Notifications["chat.stream"]["tool_calls"]>[number];
export type Model = RouteAnswer<"GET /v1/models/{model}">;
export type Embeddings = RouteAnswer<"POST /v1/embeddings">;
export type VideoRequest = RouteBody<"POST /v1/video/generations">;
export type VideoJob = RouteAnswer<"GET /v1/video/generations/{id}">;
export type VideoResult = NonNullable<VideoJob["result"]>;
export type ModelPrice = RouteAnswer<"GET /api/prices">["prices"][number];
export type Health = RouteAnswer<"GET /v1/health">;

export interface RequestOptions {
  signal?: AbortSignal;
  /** Attribution reference of the usage row, at most 64 characters. */
  ref?: string;
  /** Instead of the client's own key. */
  apiKey?: string;
}

export interface RestSource {
  fetch: Fetch;
  baseUrl: string;
  apiKey(): string | null;
}

interface Sending extends RequestOptions {
  method?: string;
  body?: unknown;
  bearer?: string | null;
}

export interface RouteSending<R extends RouteName> extends RequestOptions {
  /** Values of the path's `{name}` segments. */
  path?: Record<string, string>;
  body?: RouteBody<R>;
  bearer: string | null;
}

/** One HTTP request of the REST or admin surface; anything but 2xx throws RestError. */
export async function sendRest(
  { fetch, baseUrl }: Pick<RestSource, "fetch" | "baseUrl">,
  path: string,
  { method, body, bearer, signal, ref }: Sending,
): Promise<Response> {
  const response = await fetch(`${baseUrl}${path}`, {
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers: {
      ...(body !== undefined && { "content-type": "application/json" }),
      ...(bearer && { authorization: `Bearer ${bearer}` }),
      ...(ref !== undefined && { "x-service-ref": ref }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await restErrorOf(response);
  return response;
}

/** The chunks of a streamed chat answer. Ends at `[DONE]`; an answer that breaks off before it throws. */
async function* chatChunks(response: Response): AsyncGenerator<ChatChunk, void, undefined> {
  if (!response.body) throw new ConnectionError("the answer has no body");
  for await (const data of sseData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data) as ChatChunk & { error?: { message: string; type: string; code: string } };
    if (chunk.error) {
      throw new RestError(chunk.error.message, {
        status: response.status,
        type: chunk.error.type,
        code: chunk.error.code,
        retryAfterSeconds: null,
        requestId: response.headers.get("x-request-id"),
      });
    }
    yield chunk;
  }
  throw new ConnectionError("the answer broke off before its end");
}

/** Sends a request of the named route. */
export function sendRoute<R extends RouteName>(
  source: Pick<RestSource, "fetch" | "baseUrl">,
  route: R,
  { path = {}, ...sending }: RouteSending<R>,
): Promise<Response> {
  const [method, template] = route.split(" ") as [string, string];
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name] ?? ""));
  return sendRest(source, filled, { ...sending, method });
}

/** The same, and its answer. */
export async function callRoute<R extends RouteName>(
  source: Pick<RestSource, "fetch" | "baseUrl">,
  route: R,
  sending: RouteSending<R>,
): Promise<RouteAnswer<R>> {
  return (await (await sendRoute(source, route, sending)).json()) as RouteAnswer<R>;
}

/** The `/v1` surface, with an API key. */
export function createRest(source: RestSource) {
  const call = <R extends RouteName>(route: R, sending: Omit<RouteSending<R>, "bearer">) =>
    callRoute(source, route, { bearer: sending.apiKey ?? source.apiKey(), ...sending });
  return {
    health: (options: RequestOptions = {}) => call("GET /v1/health", options),
    models: async (options: RequestOptions = {}): Promise<Model[]> =>
      (await call("GET /v1/models", options)).data,
    /** What the models that can be called now cost. */
    prices: async (options: RequestOptions = {}): Promise<ModelPrice[]> =>
      (await call("GET /api/prices", options)).prices,
    chat: (request: ChatRequest, options: RequestOptions = {}) =>
      call("POST /v1/chat/completions", { ...options, body: { ...request, stream: false } }),
    /** Leaving the loop, or `signal`, ends the request on the service and at the model too. */
    async *chatStream(
      request: ChatRequest,
      options: RequestOptions = {},
    ): AsyncGenerator<ChatChunk, void, undefined> {
      const body = { stream_options: { include_usage: true }, ...request, stream: true };
      const bearer = options.apiKey ?? source.apiKey();
      yield* chatChunks(await sendRoute(source, "POST /v1/chat/completions", { ...options, bearer, body }));
    },
    embeddings: (request: RouteBody<"POST /v1/embeddings">, options: RequestOptions = {}) =>
      call("POST /v1/embeddings", { ...options, body: request }),
    createVideo: (request: VideoRequest, options: RequestOptions = {}) =>
      call("POST /v1/video/generations", { ...options, body: request }),
    video: (id: string, options: RequestOptions = {}) =>
      call("GET /v1/video/generations/{id}", { ...options, path: { id } }),
    /** A document of the service as text, e.g. `/metrics` or `/docs/quick-start.md`. */
    text: async (path: string, options: RequestOptions = {}): Promise<string> =>
      (await sendRest(source, path, options)).text(),
  };
}

export type Rest = ReturnType<typeof createRest>;
