import {
  DeployParams,
  type GpuReport,
  HEARTBEAT_INTERVAL_MS,
  type HelloParams,
  PROTOCOL_VERSION,
  type ProgressParams,
  parseRpcMessage,
  RpcErrorCode,
  StopParams,
  TUNNEL_PATH,
} from "@model-gateway/protocol/agent.ts";
import { type DemoModelServer, startDemoModelServer } from "./model-server.ts";

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

/** What a deployment goes through, one step a second. */
const STEPS = [
  ...[8, 25, 45, 70, 95].map((progress) => ({ status: "downloading", progress }) as const),
  ...[20, 60, 90].map((progress) => ({ status: "loading", progress }) as const),
];
const STEP_MS = 1_000;

/** A node that dials in as a GPU machine does; what is deployed to it is a demonstration model under that name. */
export function startDemoNode(gatewayUrl: string, token: string): DemoNode {
  const socket = new DialledSocket(gatewayUrl.replace(/^http/, "ws") + TUNNEL_PATH, {
    headers: { authorization: `Bearer ${token}` },
  });
  let nextId = 1;
  const say = (message: Record<string, unknown>) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  };
  const serving = new Map<string, DemoModelServer>();
  const stopping = new AbortController();
  const report = () => ({
    gpus: gpus(Date.now()),
    models: [...serving].map(([model_id, { url }]) => ({ model_id, port: Number(new URL(url).port) })),
  });
  const deploy = async ({ model_id, stream_id }: DeployParams) => {
    const tell = (step: Omit<ProgressParams, "model_id" | "stream_id">) =>
      say({ method: "agent.progress", params: { model_id, stream_id, ...step } });
    for (const step of STEPS) {
      tell(step);
      await Bun.sleep(STEP_MS);
      if (stopping.signal.aborted) return;
    }
    const server = serving.get(model_id) ?? startDemoModelServer({ models: [model_id] });
    serving.set(model_id, server);
    tell({ status: "ready", progress: 100, port: Number(new URL(server.url).port) });
  };
  const take = (method: string, params: unknown): boolean => {
    if (method === "agent.deploy") void deploy(DeployParams.parse(params));
    else if (method === "agent.stop") {
      const { model_id } = StopParams.parse(params);
      void serving.get(model_id)?.stop();
      serving.delete(model_id);
    } else return false;
    return true;
  };
  const hello = (): HelloParams => ({
    ...report(),
    version: "demo",
    host: "127.0.0.1",
    protocol: PROTOCOL_VERSION,
    direct: true,
    tunnel: false,
  });
  const heartbeat = setInterval(
    () => say({ id: nextId++, method: "agent.heartbeat", params: report() }),
    HEARTBEAT_INTERVAL_MS,
  );
  socket.addEventListener("open", () => say({ id: nextId++, method: "agent.hello", params: hello() }));
  socket.addEventListener("message", ({ data }) => {
    const parsed = typeof data === "string" ? parseRpcMessage(data) : null;
    const request = parsed as { id?: unknown; method?: string; params?: unknown } | null;
    if (request?.method === undefined) return;
    const isTaken = take(request.method, request.params);
    if (request.id === undefined) return;
    const message = `This node is part of the demonstration and has no ${request.method}`;
    say({
      id: request.id,
      ...(isTaken ? { result: { ok: true } } : { error: { code: RpcErrorCode.application, message } }),
    });
  });
  // The demonstration goes on without it.
  socket.addEventListener("error", () => {});
  return {
    stop() {
      clearInterval(heartbeat);
      stopping.abort();
      for (const server of serving.values()) void server.stop();
      socket.close();
    },
  };
}
