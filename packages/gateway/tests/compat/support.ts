import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { HttpRequest } from "@model-gateway/wire/http";
import { Router, replyOf } from "@model-gateway/wire/http";
import { Listener } from "@model-gateway/wire/server";
import { z } from "zod";
import { systemClock } from "../../src/kernel/clock.ts";
import type { Principal, Rooms } from "../../src/kernel/context.ts";
import { toRestReply, toServiceError } from "../../src/kernel/errors.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { type AnyRoute, defineRoute, raw } from "../../src/kernel/route.ts";
import { Compat, routes, throughRoute } from "../../src/rooms/compat/index.ts";
import { Gate } from "../../src/transports/rest/gate.ts";
import { RouteRunner } from "../../src/transports/rest/runner.ts";

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

/** The chat path's wire behaviour: JSON errors, JSON or server-sent events. */
const chatRoute = (chat: FakeChat): AnyRoute =>
  defineRoute({
    method: "POST",
    path: "/v1/chat/completions",
    summary: "stands in for the chat path",
    auth: "api_key",
    body: raw(z.unknown()),
    bodyBytesMax: BODY_BYTES_MAX,
    response: raw(z.unknown()),
    async handler({ request, body: bytes }) {
      request.signal.addEventListener("abort", () => chat.aborts++);
      const body = JSON.parse(bytes.toString()) as Any;
      chat.bodies.push(body);
      chat.requests.push(request);
      return chat.answer(body, request);
    },
  });

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
    refuse: (error, { requestId }) => toRestReply(toServiceError(error), requestId),
    estimateTokens: (text) => Math.ceil(Buffer.byteLength(text) / 4),
    imageTokens: 1000,
    clock: systemClock,
  });
  const principal = { keyId: "k" } as Principal;
  const gate = new Gate({
    authenticator: { identify: () => ({ actor: null, adminToken: false }) },
    keys: { authenticate: (secret) => (secret === KEY ? principal : null) },
    limiter: { hit: () => 0 },
    apiRateLimitRpm: 1,
    checkTierRate() {},
  });
  const runner = new RouteRunner({ gate, rooms: { compat } as Rooms, log: silentLog });
  const router = new Router(Object.values(routes));
  const server = new Listener({
    host: "127.0.0.1",
    port: 0,
    reusePort: false,
    connectionsMax: 100,
    refused() {},
    handle(request) {
      const found = router.find(request.method, request.path);
      if (!found) return replyOf(new Response("no such path", { status: 404 }));
      const requestId = crypto.randomUUID();
      return runner.run(found.route, { request, path: found.path, requestId, source: { ip: "127.0.0.1" } });
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
