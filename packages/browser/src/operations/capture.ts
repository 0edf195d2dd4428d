import { z } from "zod";
import { type ConsoleLevel, levelOrder } from "../capture/console.ts";
import { ToolError } from "../errors.ts";
import { defineOperation } from "./define.ts";
import { QueryTimeoutMs, queryFlag, queryInt } from "./schemas.ts";

const listMax = 1_000;
const limit = queryInt(1, listMax).default(200).describe("The newest so many");
const none = z.object({});
const cleared = z.object({ cleared: z.boolean() });

function newestWithin(lines: string[], charsMax: number): string[] {
  let chars = 0;
  let first = lines.length;
  while (first > 0 && chars + lines[first - 1]!.length < charsMax) {
    first--;
    chars += lines[first]!.length + 1;
  }
  return lines.slice(first);
}

const Message = z.object({
  level: z.enum(["debug", "info", "warning", "error"]),
  text: z.string(),
  url: z.string(),
  line: z.number(),
  time_ms: z.number(),
  page_id: z.string(),
});

export const consoleOperation = defineOperation({
  name: "console",
  summary: "Console messages and uncaught errors, oldest first",
  method: "GET",
  path: "/console",
  params: z.object({
    level: z.enum(["debug", "info", "warning", "error"]).default("info").describe("This level and worse"),
    all: queryFlag.default(true).describe("Also those of documents that the page has left"),
    limit,
  }),
  result: z.object({
    total: z.number(),
    errors: z.number(),
    warnings: z.number(),
    dropped: z.number().describe("Older messages that were forgotten"),
    messages: z.array(Message),
  }),
  run: async ({ browser }, { level, all, limit: max }) => {
    const running = await browser();
    const page = await running.page();
    const wanted = levelOrder.indexOf(level);
    const inScope = running.console.messages.items.filter(
      (message) => all || (message.page_id === page.id && message.document === page.documents),
    );
    const atLevel = (name: ConsoleLevel) => inScope.filter((message) => message.level === name).length;
    return {
      total: inScope.length,
      errors: atLevel("error"),
      warnings: atLevel("warning"),
      dropped: running.console.messages.dropped,
      messages: inScope
        .filter((message) => levelOrder.indexOf(message.level) >= wanted)
        .slice(-max)
        .map(({ document: _, ...message }) => message),
    };
  },
  tool: {
    name: "browser_console_messages",
    description: "Console messages of the page",
    isReadOnly: true,
    input: z.object({
      level: z.enum(["debug", "info", "warning", "error"]).optional(),
      all: z.boolean().optional().describe("Since the start, not only this page"),
    }),
    toParams: (input) => ({ all: false, ...input, limit: listMax }),
    present: async ({ total, errors, warnings, messages }, { session }) => {
      const lines = messages.map(
        ({ level, text, url, line }) => `[${level.toUpperCase()}] ${text} @ ${url}:${line}`,
      );
      const kept = newestWithin(lines, session.contentCharsMax);
      const left = lines.length - kept.length;
      const head = `Total messages: ${total} (Errors: ${errors}, Warnings: ${warnings})`;
      const note = left > 0 ? `\n… ${left} older messages left out` : "";
      return { result: `${head}${note}\n${kept.join("\n")}`.trimEnd() };
    },
  },
});

export const clearConsoleOperation = defineOperation({
  name: "clear-console",
  summary: "Forget the console messages",
  method: "DELETE",
  path: "/console",
  params: none,
  result: cleared,
  run: async ({ browser }) => {
    (await browser()).console.messages.clear();
    return { cleared: true };
  },
});

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
});

export const networkOperation = defineOperation({
  name: "network",
  summary: "Requests of the pages, oldest first",
  method: "GET",
  path: "/network",
  params: z.object({
    url: z.string().max(2_000).optional().describe("Only addresses that contain this"),
    type: z.string().max(40).optional().describe("Only this kind: document, script, fetch, xhr, image, …"),
    limit,
  }),
  result: z.object({ dropped: z.number(), requests: z.array(Request) }),
  run: async ({ browser }, { url, type, limit: max }) => {
    const { network } = await browser();
    const requests = network.entries.filter(
      (entry) => (!url || entry.url.includes(url)) && (!type || entry.resource_type === type.toLowerCase()),
    );
    return { dropped: network.dropped, requests: requests.slice(-max) };
  },
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
