import type { ChatUsage, ToolCall, VideoResult } from "@model-gateway/protocol/notifications.ts";
import { ConnectionError, RestError, restErrorOf } from "./errors.ts";
import type { Fetch } from "./rpc.ts";
import { sseData } from "./sse.ts";

export interface ChatMessage {
  role: "user" | "assistant" | "system" | "tool";
  content: string | Record<string, unknown>[] | null;
  [field: string]: unknown;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  temperature?: number;
  max_tokens?: number;
  conversation_id?: string;
  memory?: boolean;
  tools?: Record<string, unknown>[];
  provider?: string;
  extra?: Record<string, unknown>;
  [field: string]: unknown;
}

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: {
    index: number;
    message: { role: string; content: string | null; tool_calls?: ToolCall[] };
    finish_reason: string | null;
  }[];
  usage?: ChatUsage;
}

export interface ChatChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: number;
    delta: { role?: string; content?: string | null; reasoning_content?: string; tool_calls?: ToolCall[] };
    finish_reason: string | null;
  }[];
  usage?: ChatUsage | null;
}

export interface Model {
  id: string;
  object: "model";
  owned_by: string;
}

export interface Embeddings {
  object: "list";
  data: { object: "embedding"; embedding: number[] | string; index: number }[];
  model: string;
  usage: ChatUsage;
}

export interface VideoRequest {
  model: string;
  prompt: string;
  negative_prompt?: string;
  images?: { data_base64: string; mime_type: string }[];
  duration_seconds?: number;
  width?: number;
  height?: number;
  provider?: string;
  extra?: Record<string, unknown>;
}

export interface VideoJob {
  id: string;
  object: "video.generation";
  model: string;
  status: "queued" | "running" | "done" | "failed" | "cancelled";
  progress?: number;
  result?: VideoResult | null;
  error?: string | null;
  cost?: number | null;
  created_at: number;
}

/** USD per million tokens; null where no price is known. */
export interface ModelPrice {
  model: string;
  input: number | null;
  output: number | null;
}

export interface Health {
  status: string;
  version: string;
  build_hash: string;
  models: number;
  providers: number;
}

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

/** The `/v1` surface, with an API key. */
export function createRest(source: RestSource) {
  const json = async <T>(path: string, sending: Sending = {}): Promise<T> => {
    const bearer = sending.apiKey ?? source.apiKey();
    return (await (await sendRest(source, path, { bearer, ...sending })).json()) as T;
  };
  return {
    health: (options: RequestOptions = {}) => json<Health>("/v1/health", options),
    models: async (options: RequestOptions = {}): Promise<Model[]> =>
      (await json<{ data: Model[] }>("/v1/models", options)).data,
    /** What the models that can be called now cost. */
    prices: async (options: RequestOptions = {}): Promise<ModelPrice[]> =>
      (await json<{ prices: ModelPrice[] }>("/api/prices", options)).prices,
    chat: (request: ChatRequest, options: RequestOptions = {}) =>
      json<ChatCompletion>("/v1/chat/completions", { ...options, body: { ...request, stream: false } }),
    /** Leaving the loop, or `signal`, ends the request on the service and at the model too. */
    async *chatStream(
      request: ChatRequest,
      options: RequestOptions = {},
    ): AsyncGenerator<ChatChunk, void, undefined> {
      const body = { stream_options: { include_usage: true }, ...request, stream: true };
      const bearer = options.apiKey ?? source.apiKey();
      yield* chatChunks(await sendRest(source, "/v1/chat/completions", { ...options, bearer, body }));
    },
    embeddings: (
      request: { model: string; input: string | string[]; encoding_format?: "float" | "base64" },
      options: RequestOptions = {},
    ) => json<Embeddings>("/v1/embeddings", { ...options, body: request }),
    createVideo: (request: VideoRequest, options: RequestOptions = {}) =>
      json<VideoJob>("/v1/video/generations", { ...options, body: request }),
    video: (id: string, options: RequestOptions = {}) =>
      json<VideoJob>(`/v1/video/generations/${encodeURIComponent(id)}`, options),
    /** A document of the service as text, e.g. `/metrics` or `/docs/quick-start.md`. */
    text: async (path: string, options: RequestOptions = {}): Promise<string> =>
      (await sendRest(source, path, options)).text(),
  };
}

export type Rest = ReturnType<typeof createRest>;
