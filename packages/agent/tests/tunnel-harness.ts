/** Both ends of the tunnel, wired in memory or over a real WebSocket, with an engine to talk to. */
import { createServer, type ServerResponse } from "node:http";
import { TunnelClient } from "../src/tunnel/client.ts";
import type { FrameChannel } from "../src/tunnel/flow.ts";
import { TunnelServer } from "../src/tunnel/server.ts";
import { SocketChannel } from "../src/tunnel/socket-channel.ts";

export const MODEL = "acme/echo";
const STREAMS_MAX = 512;

export interface Engine {
  baseUrl: string;
  /** Responses now open on the engine. */
  open(): number;
  /** Bytes that /flood has written so far. */
  floodedBytes(): number;
  stop(): void;
}

/** /echo returns the request body; /flood writes 16 MiB; /tokens?n=&ms= sends n events; /hang never answers. */
export async function startEngine(): Promise<Engine> {
  let open = 0;
  let flooded = 0;
  const server = createServer((request, response) => {
    open++;
    response.on("close", () => open--);
    const url = new URL(request.url ?? "/", "http://engine");
    if (url.pathname === "/echo") {
      response.writeHead(200, {
        "content-type": request.headers["content-type"] ?? "none",
        "x-authorization": request.headers.authorization ?? "none",
        "x-length": request.headers["content-length"] ?? "none",
      });
      request.pipe(response);
    } else if (url.pathname === "/flood") {
      flooded = 0;
      flood(response, (bytes) => {
        flooded += bytes;
      });
    } else if (url.pathname === "/tokens")
      sendTokens(response, Number(url.searchParams.get("n")), Number(url.searchParams.get("ms")));
    else if (url.pathname === "/break") {
      response.writeHead(200);
      response.write("first", () => setTimeout(() => response.destroy(), 20));
    } else if (url.pathname === "/early") {
      response.writeHead(413, { connection: "close" });
      response.end("too large");
    } else if (url.pathname === "/empty") response.writeHead(204).end();
    else if (url.pathname !== "/hang") response.writeHead(404).end("no such path");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (!address || typeof address === "string") throw new Error("the engine has no port");
  return {
    baseUrl: `http://127.0.0.1:${address.port}`,
    open: () => open,
    floodedBytes: () => flooded,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export const FLOOD_BYTES = 64 * 1024 * 1024;

function flood(response: ServerResponse, wrote: (bytes: number) => void): void {
  const piece = Buffer.alloc(64 * 1024, 7);
  let left = FLOOD_BYTES;
  const push = () => {
    while (left > 0 && !response.destroyed) {
      left -= piece.length;
      wrote(piece.length);
      if (!response.write(piece)) {
        response.once("drain", push);
        return;
      }
    }
    response.end();
  };
  push();
}

function sendTokens(response: ServerResponse, count: number, everyMs: number): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  let sent = 0;
  const timer = setInterval(() => {
    response.write(`data: ${sent++}\n\n`);
    if (sent >= count) {
      clearInterval(timer);
      response.end();
    }
  }, everyMs);
  response.on("close", () => clearInterval(timer));
}

export interface Tunnel {
  client: TunnelClient;
  server: TunnelServer;
  /** Cuts the link as a dead network would make both ends see it. */
  cut(): void;
  stop(): void;
}

export function targetOf(engine: Engine, apiKey: string | null = null) {
  return (modelId: string) => (modelId === MODEL ? { baseUrl: engine.baseUrl, apiKey } : null);
}

/** A channel that hands frames over on the next microtask, as a socket would: never inside `send`. */
export function memoryTunnel(target: ReturnType<typeof targetOf>, streamsMax = STREAMS_MAX): Tunnel {
  const channelTo = (receive: (frame: Uint8Array) => void): FrameChannel => ({
    send: (frame) => queueMicrotask(() => receive(frame)),
    writable: () => null,
  });
  const client: TunnelClient = new TunnelClient({ channel: channelTo((frame) => server.receive(frame)) });
  const server: TunnelServer = new TunnelServer({
    channel: channelTo((frame) => client.receive(frame)),
    target,
    streamsMax,
  });
  const cut = () => {
    client.close("the link is dead");
    server.close();
  };
  return { client, server, cut, stop: cut };
}

/** The real thing: the gateway's end behind Bun.serve, the node's end on a WebSocket that dials it. */
export async function socketTunnel(target: ReturnType<typeof targetOf>): Promise<Tunnel> {
  const connected = Promise.withResolvers<{ client: TunnelClient; terminate: () => void }>();
  interface Ends {
    channel: SocketChannel;
    client: TunnelClient;
  }
  const ends = new Map<unknown, Ends>();
  const gateway = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request, server) => (server.upgrade(request) ? undefined : new Response("no", { status: 426 })),
    websocket: {
      idleTimeout: 0,
      open(socket) {
        const channel = new SocketChannel({
          send: (frame) => socket.sendBinary(frame as Uint8Array<ArrayBuffer>),
          bufferedBytes: () => socket.getBufferedAmount(),
        });
        const client = new TunnelClient({ channel });
        ends.set(socket, { channel, client });
        connected.resolve({ client, terminate: () => socket.terminate() });
      },
      message(socket, message) {
        if (typeof message !== "string") ends.get(socket)?.client.receive(new Uint8Array(message));
      },
      drain: (socket) => ends.get(socket)?.channel.drained(),
      close(socket) {
        ends.get(socket)?.client.close("the node's connection is gone");
        ends.get(socket)?.channel.close();
      },
    },
  });
  const socket = new WebSocket(`ws://127.0.0.1:${gateway.port}/`);
  socket.binaryType = "arraybuffer";
  const channel = new SocketChannel({
    send: (frame) => socket.send(frame as Uint8Array<ArrayBuffer>),
    bufferedBytes: () => socket.bufferedAmount,
  });
  const server = new TunnelServer({ channel, target, streamsMax: STREAMS_MAX });
  socket.onmessage = (event) => server.receive(new Uint8Array(event.data as ArrayBuffer));
  socket.onclose = () => {
    server.close();
    channel.close();
  };
  const { client, terminate } = await connected.promise;
  return {
    client,
    server,
    cut: terminate,
    stop: () => {
      socket.close();
      gateway.stop(true);
    },
  };
}

/** Waits for a condition; the deadline is generous because the machine may be busy. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, timeoutMs = 20_000) {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${timeoutMs} ms`);
    await Bun.sleep(5);
  }
}

/**
 * What a promise fails with. Used instead of `expect().rejects`, which spins the event loop inside whatever
 * socket handler happens to be running and so disturbs the very link under test.
 */
export function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => new Error(`expected a failure, got ${String(value)}`),
    (error: unknown) => error,
  );
}
