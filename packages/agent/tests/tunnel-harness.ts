/** Both ends of the tunnel, connected in memory or over a real WebSocket. */
import { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import type { FrameChannel } from "@model-gateway/protocol/tunnel/flow.ts";
import { FrameBatch } from "@model-gateway/protocol/tunnel/frames.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import type { Engine } from "@model-gateway/testing/http-engine.ts";
import { TunnelServer } from "../src/tunnel-server.ts";

export const MODEL = "acme/echo";

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

/** Frames that are batched as on a socket, and never handed over inside `send`. */
export function memoryChannel(receive: (message: Uint8Array) => void): FrameChannel {
  const batch = new FrameBatch(receive);
  return {
    send: (...frame) => batch.add(...frame),
    isFull: false,
    whenWritable: (run) => run(),
  };
}

export function memoryTunnel(target: ReturnType<typeof targetOf>): Tunnel {
  const client: TunnelClient = new TunnelClient(memoryChannel((message) => server.receive(message)));
  const server: TunnelServer = new TunnelServer({
    channel: memoryChannel((message) => client.receive(message)),
    target,
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
          send: (message) => socket.sendBinary(message),
          bufferedBytes: () => socket.getBufferedAmount(),
        });
        const client = new TunnelClient(channel);
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
    send: (message) => socket.send(message),
    bufferedBytes: () => socket.bufferedAmount,
  });
  const server = new TunnelServer({ channel, target });
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
