/** The gateway's end of the protocol as far as a node needs it, with everything it hears kept for the test. */

import {
  AGENT_METHODS,
  type HeartbeatParams,
  type HelloParams,
  type ProgressParams,
  parseRpcMessage,
  type RpcMessage,
} from "@model-gateway/protocol/agent.ts";
import { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import { NODE_TOKEN } from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { ServerWebSocket } from "bun";

interface Connection {
  socket: ServerWebSocket<undefined>;
  channel: SocketChannel;
  tunnel: TunnelClient;
}

export interface FakeGateway {
  port: number;
  url: string;
  hellos: HelloParams[];
  heartbeats: HeartbeatParams[];
  progress: ProgressParams[];
  answers: RpcMessage[];
  connection(): Connection | null;
  /** Sends a request to the node; its answer appears in `answers`. */
  request(method: string, params: unknown): number;
  /** Deploys and waits until the model is ready (or has failed). */
  deploy(modelId: string, streamId?: string): Promise<ProgressParams>;
  statuses(streamId: string): string[];
  /** Waits until the node has left and forgets what it said, so that its successor cannot be taken for it. */
  forgetNode(): Promise<void>;
  stop(): void;
}

export function startFakeGateway(options: { port?: number; heartbeatIntervalMs?: number } = {}): FakeGateway {
  let connection: Connection | null = null;
  let lastId = 0;
  const heard: Pick<FakeGateway, "hellos" | "heartbeats" | "progress" | "answers"> = {
    hellos: [],
    heartbeats: [],
    progress: [],
    answers: [],
  };
  const receive = (text: string) => {
    const message = parseRpcMessage(text);
    if (!message) throw new Error(`not JSON-RPC: ${text}`);
    const { method, id, params } = message;
    if (method === undefined) heard.answers.push(message);
    else if (method === "agent.hello") heard.hellos.push(AGENT_METHODS[method].parse(params));
    else if (method === "agent.heartbeat") heard.heartbeats.push(AGENT_METHODS[method].parse(params));
    else if (method === "agent.progress") heard.progress.push(AGENT_METHODS[method].parse(params));
    else if (method !== "agent.drain") throw new Error(`unknown method ${method}`);
    if (id !== undefined && method !== undefined) {
      const result = { heartbeat_interval_ms: options.heartbeatIntervalMs ?? 300 };
      connection?.socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
    }
  };
  const server = Bun.serve({
    port: options.port ?? 0,
    hostname: "127.0.0.1",
    fetch(request, self) {
      if (request.headers.get("authorization") !== `Bearer ${NODE_TOKEN}`)
        return new Response("unknown token", { status: 401 });
      return self.upgrade(request) ? undefined : new Response("upgrade needed", { status: 426 });
    },
    websocket: {
      open(socket: ServerWebSocket<undefined>) {
        const channel = new SocketChannel({
          send: (message) => void socket.sendBinary(message),
          bufferedBytes: () => socket.getBufferedAmount(),
        });
        connection = { socket, channel, tunnel: new TunnelClient(channel) };
      },
      message(_socket, data) {
        if (typeof data === "string") receive(data);
        else connection?.tunnel.receive(new Uint8Array(data));
      },
      close(socket) {
        if (connection?.socket !== socket) return;
        connection.tunnel.close("the node is gone");
        connection.channel.close();
        connection = null;
      },
    },
  });
  const port = server.port ?? 0;
  const gateway: FakeGateway = {
    ...heard,
    port,
    url: `ws://127.0.0.1:${port}`,
    connection: () => connection,
    request(method, params) {
      lastId++;
      connection?.socket.send(JSON.stringify({ jsonrpc: "2.0", id: lastId, method, params }));
      return lastId;
    },
    async deploy(modelId, streamId = `stream-${modelId}`) {
      gateway.request("agent.deploy", { model_id: modelId, stream_id: streamId });
      const last = () => heard.progress.findLast((each) => each.stream_id === streamId);
      await until(`${modelId} is deployed`, () => last()?.status === "ready" || last()?.status === "failed");
      return last()!;
    },
    statuses(streamId) {
      const all = heard.progress.filter((each) => each.stream_id === streamId).map(({ status }) => status);
      return all.filter((status, index) => status !== all[index - 1]);
    },
    async forgetNode() {
      await until("the node has left", () => connection === null);
      for (const list of Object.values(heard)) list.length = 0;
    },
    stop: () => server.stop(true),
  };
  return gateway;
}
