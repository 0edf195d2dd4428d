import type { ServerWebSocket } from "bun";

/** A JSON-RPC error that a handler answers with. */
export class RpcFailure extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
  }
}

/** One connection, as a handler sees it. */
export interface RpcPeer {
  /** Number of the connection, from 1. */
  readonly number: number;
  notify(method: string, params: Record<string, unknown>): void;
  /** Any text at all: for peers that break the protocol. */
  sendRaw(text: string): void;
  /** Ends the connection without a goodbye. */
  cut(): void;
  readonly open: boolean;
}

export interface ReceivedCall {
  method: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into params freely
  params: any;
  /** Absent for a notification. */
  id?: unknown;
  peer: RpcPeer;
}

/** A handler that returns this leaves the call without an answer. */
export const NO_ANSWER = Symbol("no answer");
export type RpcHandler = (call: ReceivedCall) => unknown;

export interface RpcSocketServer {
  url: string;
  port: number;
  /** Everything that arrived, in order. */
  received: ReceivedCall[];
  peers: RpcPeer[];
  /** Pings that arrived and were answered. */
  readonly pings: number;
  of(method: string): ReceivedCall[];
  stop(): Promise<void>;
}

/** A WebSocket server that answers JSON-RPC with one function; what that throws becomes the error. */
export function startRpcSocketServer(handle: RpcHandler, port = 0): RpcSocketServer {
  type Socket = ServerWebSocket<{ peer?: RpcPeer }>;
  const received: ReceivedCall[] = [];
  const peers: RpcPeer[] = [];
  let pings = 0;

  const makePeer = (socket: Socket): RpcPeer => ({
    number: peers.length + 1,
    notify: (method, params) => {
      socket.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
    },
    sendRaw: (text) => {
      socket.send(text);
    },
    cut: () => socket.terminate(),
    get open() {
      return socket.readyState === 1;
    },
  });

  const answer = async (call: ReceivedCall): Promise<object | null> => {
    try {
      const result = await handle(call);
      return result === NO_ANSWER ? null : { jsonrpc: "2.0", id: call.id, result: result ?? null };
    } catch (error) {
      const { code = -32603, data } = error as Partial<RpcFailure>;
      return { jsonrpc: "2.0", id: call.id, error: { code, message: (error as Error).message, data } };
    }
  };

  const server = Bun.serve<{ peer?: RpcPeer }>({
    hostname: "127.0.0.1",
    port,
    fetch: (request, self) =>
      self.upgrade(request, { data: {} }) ? undefined : new Response("", { status: 426 }),
    websocket: {
      maxPayloadLength: 256 * 1024 * 1024,
      backpressureLimit: 256 * 1024 * 1024,
      open(socket) {
        socket.data.peer = makePeer(socket);
        peers.push(socket.data.peer);
      },
      ping() {
        pings++;
      },
      async message(socket, text) {
        const { id, method, params } = JSON.parse(String(text));
        const call: ReceivedCall = { method, params, peer: socket.data.peer! };
        if (id !== undefined) call.id = id;
        received.push(call);
        const reply = await answer(call);
        if (reply && id !== undefined && socket.readyState === 1) socket.send(JSON.stringify(reply));
      },
    },
  });
  return {
    url: `ws://127.0.0.1:${server.port}`,
    port: server.port!,
    received,
    peers,
    get pings() {
      return pings;
    },
    of: (method) => received.filter((call) => call.method === method),
    stop: () => server.stop(true),
  };
}
