import type { Socket } from "bun";
import { isWork, worker } from "./work.ts";

/** One request as the upstream received it. */
export interface ReceivedRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  text: string;
  /** The body as it came. */
  bytes: Buffer;
  /** Head and body as they came. */
  raw: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies freely
  json: any;
  /** Set when the gateway closed the connection while the request was being answered. */
  closedAtMs: number | null;
}

/** How a request is answered, byte by byte; every way of misbehaving is a sequence of these. */
export interface Reply {
  /** Status line and headers; `transfer-encoding: chunked` unless a length is given. */
  head(status: number, headers?: Record<string, string>): void;
  /** One piece of the body. Resolves when the socket has taken it. */
  write(piece: string | Uint8Array): Promise<void>;
  /** Ends the body properly. */
  end(): Promise<void>;
  /** Closes the connection after what was sent. */
  close(): void;
  /** Breaks the connection at once, in the middle of whatever was being sent. */
  reset(): void;
  /** Bytes outside of every framing. */
  raw(bytes: string | Uint8Array): Promise<void>;
  json(value: unknown, status?: number, headers?: Record<string, string>): Promise<void>;
  /** An event stream with the given pieces, each flushed on its own, and its proper end. */
  stream(pieces: readonly (string | Uint8Array)[]): Promise<void>;
}

export type UpstreamHandler = (request: ReceivedRequest, reply: Reply) => void | Promise<void>;

export interface FakeUpstream {
  url: string;
  port: number;
  /** Requests other than probes, oldest first. */
  requests: ReceivedRequest[];
  probeCount: number;
  /** Connections that are open now. */
  readonly connectionCount: number;
  /** Replaces how chats and embeddings are answered. */
  answer(handler: UpstreamHandler): void;
  /** Replaces how the model listing is answered. */
  listing(handler: UpstreamHandler): void;
  stop(): void;
}

/** What happens to one request here, with every byte: it came in, a piece was sent, it is over. */
export type UpstreamEvent =
  | { event: "request"; id: number; bytes: Uint8Array }
  | { event: "sent"; id: number; bytes: Uint8Array }
  | { event: "ended"; id: number; by: "upstream" | "gateway" };

export interface FakeUpstreamOptions {
  models?: readonly string[];
  port?: number;
  handler?: UpstreamHandler;
  /** Is told of requests other than probes. */
  tap?: (event: UpstreamEvent) => void;
}

export const USAGE = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };

interface ChunkFields {
  delta?: Record<string, unknown>;
  finish_reason?: string | null;
  usage?: unknown;
  model?: string;
}

/** One event of a well-formed stream. */
export const chunk = ({ delta = {}, finish_reason = null, usage, model = "m" }: ChunkFields = {}): string =>
  `data: ${JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1_763_000_000,
    model,
    choices: [{ index: 0, delta, finish_reason }],
    ...(usage !== undefined && { usage }),
  })}\n\n`;

export const usageChunk = (usage: unknown = USAGE): string =>
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_763_000_000, model: "m", choices: [], usage })}\n\n`;

export const DONE = "data: [DONE]\n\n";

/** A whole stream that says `words`. */
export const wholeStream = (words: readonly string[]): string[] => [
  chunk({ delta: { role: "assistant", content: "" } }),
  ...words.map((content) => chunk({ delta: { content } })),
  chunk({ finish_reason: "stop" }),
  usageChunk(),
  DONE,
];

export const completion = (content: string, rest: Record<string, unknown> = {}) => ({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_763_000_000,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
  usage: USAGE,
  ...rest,
});

const politeCompletion = (reply: Reply) =>
  reply.json({
    id: "cmpl-1",
    object: "text_completion",
    created: 1_763_000_000,
    model: "m",
    choices: [{ index: 0, text: "ok", logprobs: null, finish_reason: "stop" }],
    usage: USAGE,
  });

/** Says the last message back; embeds texts as three numbers; calls the first tool when there is one. */
export const politeHandler: UpstreamHandler = async (request, reply) => {
  const { path, json } = request;
  if (isWork(path)) return worker(request, reply);
  if (path.endsWith("/embeddings")) return politeEmbeddings(json, reply);
  if (path.endsWith("/completions") && !json.messages) return politeCompletion(reply);
  if (!json.messages) return reply.json({ error: { message: "Not Found" } }, 404);
  const text = String(json.messages.at(-1)?.content ?? "");
  const tool = json.tools?.[0]?.function?.name as string | undefined;
  if (!json.stream) {
    const call = { id: "call_1", type: "function", function: { name: tool, arguments: '{"city":"Oslo"}' } };
    const message = tool
      ? { role: "assistant", content: null, tool_calls: [call] }
      : { role: "assistant", content: text };
    const finish_reason = tool ? "tool_calls" : "stop";
    return reply.json(completion("", { choices: [{ index: 0, message, finish_reason }] }));
  }
  if (!tool) return reply.stream(wholeStream(text.match(/\S+\s*/g) ?? []));
  const opening = { index: 0, id: "call_1", type: "function", function: { name: tool, arguments: "" } };
  await reply.stream([
    chunk({ delta: { role: "assistant", content: null } }),
    chunk({ delta: { tool_calls: [opening] } }),
    chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] } }),
    chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] } }),
    chunk({ finish_reason: "tool_calls" }),
    usageChunk(),
    DONE,
  ]);
};

// biome-ignore lint/suspicious/noExplicitAny: a request body as it came
function politeEmbeddings(json: any, reply: Reply): Promise<void> {
  const inputs = Array.isArray(json.input) ? json.input : [json.input];
  const vectors = inputs.map((text: unknown) => [String(text).length, 0.5, -1.25]);
  return reply.json({
    object: "list",
    data: vectors.map((vector: number[], index: number) => ({
      object: "embedding",
      index,
      embedding:
        json.encoding_format === "base64"
          ? Buffer.from(new Float32Array(vector).buffer).toString("base64")
          : vector,
    })),
    model: json.model,
    usage: { prompt_tokens: inputs.length, total_tokens: inputs.length },
  });
}

interface Connection {
  received: Buffer;
  current: ReceivedRequest | null;
  /** Of the request that is being answered, for the tap; null: none, or a probe. */
  tapped: { id: number; isClosing: boolean } | null;
  unsent: Uint8Array;
  drained: (() => void)[];
  closed: boolean;
}
type UpstreamSocket = Socket<Connection>;

/** Like every server of chats. */
const noVideos: UpstreamHandler = (_, reply) => reply.json({ detail: "Not Found" }, 404);

/** A chat-compatible upstream on a raw socket, so that it can misbehave in every way that a server can. */
export function startUpstream({
  models = ["m"],
  port = 0,
  handler = politeHandler,
  tap = () => {},
}: FakeUpstreamOptions = {}): FakeUpstream {
  let lastId = 0;
  const ended = ({ data }: UpstreamSocket, by: "upstream" | "gateway") => {
    if (data.tapped) tap({ event: "ended", id: data.tapped.id, by: data.tapped.isClosing ? "upstream" : by });
    data.tapped = null;
  };
  const sockets = new Set<UpstreamSocket>();
  const state = {
    answer: handler,
    listing: ((_, reply) =>
      reply.json({
        object: "list",
        data: models.map((id) => ({ id, object: "model", created: 0, owned_by: "test" })),
      })) as UpstreamHandler,
  };
  const upstream: FakeUpstream = {
    url: "",
    port: 0,
    requests: [],
    probeCount: 0,
    get connectionCount() {
      return sockets.size;
    },
    answer: (next) => {
      state.answer = next;
    },
    listing: (next) => {
      state.listing = next;
    },
    stop() {
      listener.stop(true);
      for (const socket of sockets) socket.terminate();
    },
  };
  const serve = async (socket: UpstreamSocket, request: ReceivedRequest) => {
    const isProbe = request.method === "GET";
    const isForVideos = isProbe && request.path.startsWith("/v1/videos");
    if (isProbe) upstream.probeCount += isForVideos ? 0 : 1;
    else {
      upstream.requests.push(request);
      socket.data.tapped = { id: ++lastId, isClosing: false };
      tap({ event: "request", id: lastId, bytes: request.raw });
    }
    const handle = isForVideos ? noVideos : isProbe ? state.listing : state.answer;
    await handle(request, replyOn(socket, tap));
    if (socket.data.current === request) {
      socket.data.current = null;
      ended(socket, "upstream");
    }
    next(socket);
  };
  const next = (socket: UpstreamSocket) => {
    if (socket.data.current || socket.data.closed) return;
    const request = takeRequest(socket.data);
    if (!request) return;
    socket.data.current = request;
    void serve(socket, request);
  };
  const listener = Bun.listen<Connection>({
    hostname: "127.0.0.1",
    port,
    socket: {
      open(socket) {
        socket.data = {
          received: Buffer.alloc(0),
          current: null,
          tapped: null,
          unsent: new Uint8Array(),
          drained: [],
          closed: false,
        };
        sockets.add(socket);
      },
      data(socket, bytes) {
        socket.data.received = Buffer.concat([socket.data.received, bytes]);
        next(socket);
      },
      drain: flush,
      close(socket) {
        sockets.delete(socket);
        socket.data.closed = true;
        if (socket.data.current) socket.data.current.closedAtMs = Date.now();
        ended(socket, "gateway");
        for (const resolve of socket.data.drained.splice(0)) resolve();
      },
      error() {},
    },
  });
  upstream.port = listener.port;
  upstream.url = `http://127.0.0.1:${listener.port}`;
  return upstream;
}

/** The next complete request that a connection has received. */
function takeRequest(connection: Connection): ReceivedRequest | null {
  const headEnd = connection.received.indexOf("\r\n\r\n");
  if (headEnd === -1) return null;
  const [line = "", ...headerLines] = connection.received.toString("latin1", 0, headEnd).split("\r\n");
  const headers = Object.fromEntries(
    headerLines.map((header) => {
      const colon = header.indexOf(":");
      return [header.slice(0, colon).toLowerCase(), header.slice(colon + 1).trim()];
    }),
  );
  const bodyEnd = headEnd + 4 + Number(headers["content-length"] ?? 0);
  if (connection.received.length < bodyEnd) return null;
  const raw = Buffer.from(connection.received.subarray(0, bodyEnd));
  const bytes = raw.subarray(headEnd + 4);
  const text = bytes.toString();
  connection.received = connection.received.subarray(bodyEnd);
  const [method = "", path = ""] = line.split(" ");
  const isForm = headers["content-type"]?.startsWith("multipart/") === true;
  const json = text && !isForm ? JSON.parse(text) : null;
  return { method, path, headers, text, bytes, raw, json, closedAtMs: null };
}

function flush(socket: UpstreamSocket): void {
  const { data } = socket;
  while (data.unsent.length > 0) {
    const sent = socket.write(data.unsent);
    if (sent <= 0) return;
    data.unsent = data.unsent.subarray(sent);
  }
  for (const resolve of data.drained.splice(0)) resolve();
}

function replyOn(socket: UpstreamSocket, tap: (event: UpstreamEvent) => void): Reply {
  let chunked = true;
  const raw = async (bytes: string | Uint8Array) => {
    const { data } = socket;
    if (data.closed) return;
    const piece = typeof bytes === "string" ? Buffer.from(bytes) : bytes;
    if (data.tapped) tap({ event: "sent", id: data.tapped.id, bytes: piece });
    data.unsent = Buffer.concat([data.unsent, piece]);
    flush(socket);
    if (data.unsent.length > 0) await new Promise<void>((resolve) => data.drained.push(resolve));
  };
  const leave = (end: () => void) => {
    if (socket.data.tapped) socket.data.tapped.isClosing = true;
    end();
  };
  const reply: Reply = {
    raw,
    head(status, headers = {}) {
      chunked = headers["content-length"] === undefined;
      const all: Record<string, string> = chunked
        ? { "transfer-encoding": "chunked", ...headers }
        : { ...headers };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
      void raw(`HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n`);
    },
    write(piece) {
      const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
      if (!chunked) return raw(bytes);
      return raw(
        Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]),
      );
    },
    end: () => (chunked ? raw("0\r\n\r\n") : Promise.resolve()),
    close: () => leave(() => socket.end()),
    reset: () => leave(() => socket.terminate()),
    async json(value, status = 200, headers = {}) {
      const body = JSON.stringify(value);
      reply.head(status, {
        "content-type": "application/json",
        "content-length": String(Buffer.byteLength(body)),
        ...headers,
      });
      await reply.write(body);
    },
    async stream(pieces) {
      reply.head(200, { "content-type": "text/event-stream" });
      for (const piece of pieces) {
        await reply.write(piece);
        // Lets the bytes leave before the next ones, so that pieces arrive as such.
        await new Promise((resolve) => setImmediate(resolve));
      }
      await reply.end();
    },
  };
  return reply;
}
