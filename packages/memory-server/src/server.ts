import { timingSafeEqual } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describeIssues } from "@model-gateway/protocol/agent.ts";
import { systemClock } from "@model-gateway/wire/clock";
import { bearerOf } from "@model-gateway/wire/http";
import { z } from "zod";
import { memoryMethods } from "./methods.ts";
import { FactStore } from "./store.ts";

const MESSAGE_BYTES_MAX = 1024 * 1024;
/** A peer that does not read its answers is cut off here. */
const SEND_BUFFER_BYTES_MAX = 4 * 1024 * 1024;
const MEMORY_FILE = "memory.sqlite";

export interface MemoryServerOptions {
  dataDir: string;
  /** 0 takes a free one. */
  port: number;
  host?: string;
  /** When set, connections must bring it as a bearer or as `?token=`. */
  token?: string | null;
}

export interface MemoryServer {
  /** WebSocket URL for SERVICE_MEMORY_URL. */
  url: string;
  stop(): Promise<void>;
}

const Message = z.object({
  jsonrpc: z.literal("2.0"),
  id: z.unknown(),
  method: z.string(),
  params: z.unknown(),
});

type Methods = ReturnType<typeof memoryMethods>;
const failure = (id: unknown, code: number, message: string) => ({
  jsonrpc: "2.0",
  id,
  error: { code, message },
});

/** The answer to one message; null for a notification, which gets none. */
function answer(methods: Methods, text: string): object | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return failure(null, -32700, "Parse error");
  }
  const message = Message.safeParse(parsed);
  if (!message.success) return failure(null, -32600, "Invalid request: send one JSON-RPC 2.0 object");
  const { id, method, params } = message.data;
  const run = methods.get(method);
  const reply = () => {
    if (!run) return failure(id, -32601, `Method not found: ${method.slice(0, 100)}`);
    try {
      return { jsonrpc: "2.0", id, result: run(params ?? {}) };
    } catch (error) {
      if (error instanceof z.ZodError) return failure(id, -32602, `Invalid params: ${describeIssues(error)}`);
      return failure(id, -32603, `Internal error: ${(error as Error).message}`);
    }
  };
  const replied = reply();
  return id === undefined ? null : replied;
}

/** Digests have one length, so the time it takes says nothing about the texts. */
const isSame = (a: string, b: string) => timingSafeEqual(Bun.SHA256.hash(a), Bun.SHA256.hash(b));

function refusal(request: Request, token: string | null): Response | null {
  // A page in someone's browser must not reach a service on this machine.
  if (request.headers.has("origin")) return new Response("Browsers may not connect here\n", { status: 403 });
  if (token === null) return null;
  const given =
    bearerOf({ header: (name) => request.headers.get(name) }) ??
    new URL(request.url).searchParams.get("token");
  if (given !== null && isSame(given, token)) return null;
  return new Response("A valid token is required\n", { status: 401 });
}

/** The reference memory service: JSON-RPC over WebSocket on a SQLite file. */
export function startMemoryServer({
  dataDir,
  port,
  host = "127.0.0.1",
  token = null,
}: MemoryServerOptions): MemoryServer {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const store = new FactStore(join(dataDir, MEMORY_FILE), systemClock);
  const methods = memoryMethods(store);
  const server = Bun.serve({
    hostname: host,
    port,
    fetch(request, self) {
      const refused = refusal(request, token);
      if (refused) return refused;
      if (self.upgrade(request)) return undefined;
      return new Response("This is a memory service; connect by WebSocket\n", { status: 426 });
    },
    websocket: {
      maxPayloadLength: MESSAGE_BYTES_MAX,
      backpressureLimit: SEND_BUFFER_BYTES_MAX,
      closeOnBackpressureLimit: true,
      message(socket, message) {
        const reply = answer(methods, String(message));
        if (reply) socket.send(JSON.stringify(reply));
      },
    },
  });
  const address = host.includes(":") ? `[${host}]` : host;
  return {
    url: `ws://${address}:${server.port}`,
    async stop() {
      await server.stop(true);
      store.close();
    },
  };
}
