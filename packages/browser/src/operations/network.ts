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
  summary: "One request with the body of its answer",
  method: "GET",
  path: "/request",
  timeoutMs: 10_000,
  params: z.object({ id: z.string().min(1).max(40), timeout_ms: QueryTimeoutMs }),
  result: RequestEntry.extend({ body: z.string(), base64: z.boolean(), body_missing: z.string().optional() }),
  run: async ({ browser, deadline }, { id }) => {
    const { network } = await browser();
    const body = await network
      .body(id, deadline.leftMs)
      .catch((error: Error) => ({ body: "", base64: false, body_missing: error.message }));
    return { ...network.entry(id), ...body };
  },
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
