import { z } from "zod";
import { ToolError } from "../errors.ts";
import { cleared, limit, none } from "./console.ts";
import { defineOperation } from "./define.ts";
import { requestsOf } from "./logs.ts";
import { QueryTimeoutMs, queryFlag } from "./schemas.ts";

const headers = z.record(z.string(), z.string());
const Request = z.object({
  id: z.string(),
  page_id: z.string(),
  url: z.string(),
  method: z.string(),
  resource_type: z.string(),
  state: z.enum(["pending", "done", "failed"]),
  status: z.number().nullable(),
  mime_type: z.string().nullable(),
  error: z.string().nullable(),
  request_headers: headers,
  response_headers: headers,
  post_data: z.string().nullable(),
  bytes: z.number(),
  started_ms: z.number(),
  duration_ms: z.number().nullable(),
  redirected_to: z.string().nullable(),
  initiator: z.string().describe("What made the page ask for it"),
  waited_ms: z.number().nullable().describe("Until the first byte of the answer"),
});

export const networkOperation = defineOperation({
  name: "network",
  summary: "Requests of the pages, oldest first",
  method: "GET",
  path: "/network",
  params: z.object({
    url: z.string().max(2_000).optional().describe("Only addresses that contain this"),
    type: z.string().max(40).optional().describe("Only this kind: document, script, fetch, xhr, image, …"),
    status: z.string().max(10).optional().describe("Only this outcome: 404, 4xx, failed, pending"),
    all: queryFlag
      .default(true)
      .describe("Also those of other pages, and of documents that the page has left"),
    limit,
  }),
  result: z.object({ dropped: z.number(), requests: z.array(Request) }),
  run: async ({ browser }, { url = "", type, status, all, limit: max }) => {
    const running = await browser();
    const filter = [type, status].flatMap((each) => each?.toLowerCase() ?? []);
    const requests = requestsOf(running, { words: filter, url, all });
    return { dropped: running.network.dropped, requests: requests.slice(-max) };
  },
});

export const requestOperation = defineOperation({
  name: "request",
  summary: "One request in detail",
  method: "GET",
  path: "/network/:id",
  params: z.object({ id: z.string().min(1).max(40) }),
  result: Request,
  run: async ({ browser }, { id }) => (await browser()).network.entry(id),
});

export const networkBodyOperation = defineOperation({
  name: "network-body",
  summary: "Body of a response",
  method: "GET",
  path: "/network/:id/body",
  timeoutMs: 10_000,
  params: z.object({ id: z.string().min(1).max(40), timeout_ms: QueryTimeoutMs }),
  result: z.object({ body: z.string(), base64: z.boolean() }),
  run: async ({ browser, deadline }, { id }) => (await browser()).network.body(id, deadline.leftMs),
});

export const clearNetworkOperation = defineOperation({
  name: "clear-network",
  summary: "Forget the requests",
  method: "DELETE",
  path: "/network",
  params: none,
  result: cleared,
  run: async ({ browser }) => {
    (await browser()).network.clear();
    return { cleared: true };
  },
});

const Frame = z.object({
  direction: z.enum(["sent", "received"]),
  opcode: z.number().describe("1 text, 2 binary (base64)"),
  payload: z.string(),
  truncated: z.boolean(),
  time_ms: z.number(),
});

export const webSocketsOperation = defineOperation({
  name: "websockets",
  summary: "WebSocket connections and their frames",
  method: "GET",
  path: "/websockets",
  params: z.object({ id: z.string().max(40).optional(), limit }),
  result: z.object({
    sockets: z.array(
      z.object({
        id: z.string(),
        page_id: z.string(),
        url: z.string(),
        state: z.enum(["open", "closed"]),
        error: z.string().nullable(),
        frames: z.array(Frame),
        frames_dropped: z.number(),
      }),
    ),
  }),
  run: async ({ browser }, { id, limit: max }) => {
    const sockets = (await browser()).network.sockets.filter((socket) => !id || socket.id === id);
    if (id && sockets.length === 0)
      throw new ToolError("not_found", `No WebSocket "${id}". GET /websockets lists them.`);
    return { sockets: sockets.map((socket) => ({ ...socket, frames: socket.frames.slice(-max) })) };
  },
});

export const clearWebSocketsOperation = defineOperation({
  name: "clear-websockets",
  summary: "Forget the WebSocket connections",
  method: "DELETE",
  path: "/websockets",
  params: none,
  result: cleared,
  run: async ({ browser }) => {
    (await browser()).network.clearSockets();
    return { cleared: true };
  },
});
