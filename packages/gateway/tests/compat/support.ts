import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { HttpRequest } from "@model-gateway/wire/http";
import { Reply, replyOf } from "@model-gateway/wire/http";
import { Listener } from "@model-gateway/wire/server";
import { systemClock } from "../../src/kernel/clock.ts";
import type { Rooms } from "../../src/kernel/context.ts";
import { toRestReply, toServiceError } from "../../src/kernel/errors.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { defineRoute, type RouteCall, type RouteDefinition } from "../../src/kernel/route.ts";
import { Compat, routes, throughRoute } from "../../src/rooms/compat/index.ts";

const BODY_BYTES_MAX = 64 * 1024 * 1024;
export const KEY = "service-11111111-2222-4333-8444-555555555555";

export const fixture = (name: string): Buffer<ArrayBuffer> =>
  readFileSync(join(import.meta.dir, "fixtures", name)) as Buffer<ArrayBuffer>;

// biome-ignore lint/suspicious/noExplicitAny: tests look into bodies freely
export type Any = any;

export interface FakeChat {
  /** What the chat path was asked, oldest first. */
  bodies: Any[];
  requests: HttpRequest[];
  /** Aborts that reached the chat path. */
  aborts: number;
  /** Bytes that were read from the last streamed answer. */
  bytesRead: number;
  answer: (body: Any, request: HttpRequest) => Response | Promise<Response>;
}

export const completion = (message: object, finish = "stop", usage: object | null = USAGE): Response =>
  Response.json({
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 1_763_000_000,
    model: "gpt-test",
    choices: [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finish }],
    ...(usage && { usage }),
  });

export const USAGE = {
  prompt_tokens: 21,
  completion_tokens: 9,
  total_tokens: 30,
  prompt_tokens_details: { cached_tokens: 16 },
  completion_tokens_details: { reasoning_tokens: 4 },
};

export const eventStream = (body: BodyInit): Response =>
  new Response(body, { headers: { "content-type": "text/event-stream", "x-request-id": "req-of-chat" } });

/** The chat path's wire behaviour: a plain-text 401, JSON errors, JSON or server-sent events. */
function chatRoute(chat: FakeChat): RouteDefinition {
  return defineRoute({
    method: "POST",
    path: "/v1/chat/completions",
    summary: "stands in for the chat path",
    auth: "api_key",
    async handler({ request }: RouteCall) {
      if (request.header("authorization") !== `Bearer ${KEY}`) {
        return new Response("Invalid API key", { status: 401 });
      }
      request.signal.addEventListener("abort", () => chat.aborts++);
      const body = JSON.parse((await request.body(BODY_BYTES_MAX)).toString()) as Any;
      chat.bodies.push(body);
      chat.requests.push(request);
      return chat.answer(body, request);
    },
  });
}

export interface CompatServer {
  url: string;
  chat: FakeChat;
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>;
  stop(): Promise<void>;
}

/** The room's routes behind a real listener, over a chat path that answers what the test says. */
export function serveCompat(): CompatServer {
  const chat: FakeChat = {
    bodies: [],
    requests: [],
    aborts: 0,
    bytesRead: 0,
    answer: () => completion({ content: "ok" }),
  };
  const compat = new Compat({
    chat: throughRoute(chatRoute(chat)),
    authenticate: (secret) => (secret === KEY ? { keyId: "k" } : null),
    requireApiKey: async (request) =>
      request.header("authorization") === `Bearer ${KEY}`
        ? { keyId: "k" }
        : new Reply({ status: 401, contentType: "text/plain", requestId: "r" }, "Missing or invalid API key"),
    estimateTokens: (text) => Math.ceil(Buffer.byteLength(text) / 4),
    imageTokens: 1000,
    clock: systemClock,
  });
  const all = Object.values(routes) as RouteDefinition[];
  const server = new Listener({
    host: "127.0.0.1",
    port: 0,
    reusePort: false,
    connectionsMax: 100,
    refused() {},
    async handle(request) {
      const route = all.find((one) => one.path === request.path && one.method === request.method);
      if (!route) return replyOf(new Response("no such path", { status: 404 }));
      const requestId = crypto.randomUUID();
      try {
        const response = await route.handler({
          caller: { actor: null, adminToken: false, ip: "127.0.0.1" },
          requestId,
          log: silentLog,
          rooms: { compat } as Rooms,
          request,
          path: {},
          query: new URLSearchParams(request.search),
        });
        return replyOf(response as Response);
      } catch (error) {
        return toRestReply(toServiceError(error), requestId);
      }
    },
    newRequestId: () => crypto.randomUUID(),
    messageBytesMax: 1024,
    bufferBytesMax: 1024,
    clock: systemClock,
    log: silentLog,
  });
  const url = `http://127.0.0.1:${server.port}`;
  return {
    url,
    chat,
    post: (path, body, headers = {}) =>
      fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${KEY}`, ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
    stop: () => server.stop(true),
  };
}

export interface NamedEvent {
  event: string;
  data: Any;
}

/** The events of a stream's text. */
export function eventsOf(text: string): NamedEvent[] {
  return text
    .split("\n\n")
    .filter((block) => block.startsWith("event: "))
    .map((block) => {
      const [event, data] = block.split("\n");
      return { event: event!.slice(7), data: JSON.parse(data!.slice(6)) };
    });
}

/** A stream that sends one chunk a read for as long as it is read; counts what was taken. */
export function endlessStream(chat: FakeChat, line: string): Response {
  const bytes = new TextEncoder().encode(line);
  return eventStream(
    new ReadableStream<Uint8Array>({
      pull(controller) {
        chat.bytesRead += bytes.length;
        controller.enqueue(bytes);
      },
      cancel() {
        chat.aborts++;
      },
    }),
  );
}

/** What a promise rejects with; the clients' promises are no plain ones, so `expect().rejects` cannot see into them. */
export const failing = (promise: PromiseLike<unknown>): Promise<Any> =>
  Promise.resolve(
    promise.then(
      () => {
        throw new Error("expected a rejection");
      },
      (thrown: unknown) => thrown,
    ),
  );
