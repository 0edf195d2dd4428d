import {
  type GpuReport,
  HEARTBEAT_INTERVAL_MS,
  type HelloParams,
  PROTOCOL_VERSION,
  parseRpcMessage,
  RpcErrorCode,
  TUNNEL_PATH,
} from "@model-gateway/protocol/agent.ts";

/** Bun's client takes headers; the DOM's types, which the whole workspace shares, lack them. */
const DialledSocket = WebSocket as unknown as new (
  url: string,
  options: Bun.WebSocketOptions,
) => Bun.WebSocket;

const GPU = { name: "Demonstration GPU", memory_total_mb: 24_576 };
const GPU_COUNT = 2;
const MINUTE_MS = 60_000;

/** Figures that move a little, as a machine's do. */
const gpus = (nowMs: number): GpuReport[] =>
  Array.from({ length: GPU_COUNT }, (_, index) => {
    const wave = (1 + Math.sin(nowMs / MINUTE_MS + index * 2)) / 2;
    return {
      index,
      ...GPU,
      memory_used_mb: Math.round(2_000 + wave * 14_000),
      utilization: Math.round(wave * 90),
      temperature_c: Math.round(38 + wave * 30),
      power_w: Math.round(60 + wave * 220),
    };
  });

export interface DemoNode {
  stop(): void;
}

/** A node that dials in as a GPU machine does, and has nothing but figures. */
export function startDemoNode(gatewayUrl: string, token: string): DemoNode {
  const socket = new DialledSocket(gatewayUrl.replace(/^http/, "ws") + TUNNEL_PATH, {
    headers: { authorization: `Bearer ${token}` },
  });
  let nextId = 1;
  const say = (message: Record<string, unknown>) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  };
  const report = () => ({ gpus: gpus(Date.now()), models: [] });
  const hello = (): HelloParams => ({
    ...report(),
    version: "demo",
    host: "this machine",
    protocol: PROTOCOL_VERSION,
    direct: false,
    tunnel: false,
  });
  const heartbeat = setInterval(
    () => say({ id: nextId++, method: "agent.heartbeat", params: report() }),
    HEARTBEAT_INTERVAL_MS,
  );
  socket.addEventListener("open", () => say({ id: nextId++, method: "agent.hello", params: hello() }));
  socket.addEventListener("message", ({ data }) => {
    const parsed = typeof data === "string" ? parseRpcMessage(data) : null;
    const request = parsed as { id?: unknown; method?: string } | null;
    if (request?.method === undefined || request.id === undefined) return;
    const message = "This node is part of the demonstration and runs no models";
    say({ id: request.id, error: { code: RpcErrorCode.application, message } });
  });
  // The demonstration goes on without it.
  socket.addEventListener("error", () => {});
  return {
    stop() {
      clearInterval(heartbeat);
      socket.close();
    },
  };
}
