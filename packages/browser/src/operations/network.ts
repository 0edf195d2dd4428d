import { z } from "zod";
import { RequestEntry, SocketEntry } from "../capture/network.ts";
import { ToolError } from "../errors.ts";
import { limit } from "./console.ts";
import { defineOperation } from "./define.ts";
import { requestsOf } from "./logs.ts";
import { QueryTimeoutMs, queryFlag } from "./schemas.ts";

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
  result: z.object({ dropped: z.number(), requests: z.array(RequestEntry) }),
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
  result: RequestEntry,
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

export const webSocketsOperation = defineOperation({
  name: "websockets",
  summary: "WebSocket connections and their frames",
  method: "GET",
  path: "/websockets",
  params: z.object({ id: z.string().max(40).optional(), limit }),
  result: z.object({
    sockets: z.array(SocketEntry),
  }),
  run: async ({ browser }, { id, limit: max }) => {
    const sockets = (await browser()).network.sockets.filter((socket) => !id || socket.id === id);
    if (id && sockets.length === 0)
      throw new ToolError("not_found", `No WebSocket "${id}". GET /websockets lists them.`);
    return { sockets: sockets.map((socket) => ({ ...socket, frames: socket.frames.slice(-max) })) };
  },
});
