import { join } from "node:path";
import { type EngineTarget, TunnelServer } from "@model-gateway/agent/tunnel-server.ts";
import type { HelloParams } from "@model-gateway/protocol/agent.ts";
import { decodeFrames, encodeReset, FrameBatch, FrameType } from "@model-gateway/protocol/tunnel/frames.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import type { TestGateway } from "@model-gateway/testing/gateway.ts";
import { type RunningNode, startNode, type Workplace } from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { Backend } from "../../src/backends/contract.ts";
import { AgentStore } from "../../src/rooms/agents/store.ts";
import type { Database } from "../../src/storage/contract.ts";
import { abortable, textOf } from "../support/backends.ts";

export interface Notified {
  stream_id: string;
  agent_id: string;
  model_id: string;
  status: string;
  progress: number;
  message?: string;
}

export interface Followed {
  all: Notified[];
  /** Without repetitions. */
  statuses(): string[];
  last(): Notified | undefined;
  stop(): void;
}

/** Everything that is told on one notification stream, as a subscriber hears it. */
export async function follow(gateway: TestGateway, streamId: string): Promise<Followed> {
  const leave = new AbortController();
  const response = await fetch(`${gateway.url}/api/rpc/events?session=${streamId}`, { signal: leave.signal });
  const all: Notified[] = [];
  void (async () => {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body!) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (!line.startsWith("data: ")) continue;
        const { method, params } = JSON.parse(line.slice(6)) as { method: string; params: Notified };
        if (method === "models.progress") all.push(params);
      }
    }
  })().catch(() => undefined);
  return {
    all,
    statuses: () => all.map(({ status }) => status).filter((status, i, list) => status !== list[i - 1]),
    last: () => all.at(-1),
    stop: () => leave.abort(),
  };
}

/** As if these models had been deployed to the node earlier. */
export const deployedBefore = (gateway: TestGateway, agentId: string, ...modelIds: string[]) =>
  recordDeployments(gateway.app.rooms.agents.options.db, agentId, modelIds);

export async function recordDeployments(db: Database, agentId: string, modelIds: readonly string[]) {
  const store = new AgentStore(db);
  const now = new Date().toISOString();
  for (const modelId of modelIds)
    await store.recordDeployment(agentId, modelId, { besideBackends: false, now });
}

const chatBody = (model: string, stream: boolean) => ({
  model,
  stream,
  messages: [{ role: "user", content: "good morning" }],
});

/** One chat turn through a backend; the whole answer as text. */
export async function chat(backend: Backend | null, model: string, stream = false): Promise<string> {
  if (!backend?.chat) throw new Error(`${model} is not routable`);
  const object = () => chatBody(model, stream);
  const answer = await backend.chat({
    model,
    stream,
    requestId: "test",
    ...abortable(AbortSignal.timeout(20_000)),
    body: { bytes: () => JSON.stringify(object()), object },
  });
  return textOf(answer);
}

export interface RegisteredNode {
  agentId: string;
  token: string;
  workplace: Workplace;
  /** Starts the node program and waits until the gateway sees it. */
  start(env?: Record<string, string | undefined>): Promise<RunningNode>;
}

export async function registerNode(
  gateway: TestGateway,
  { admin, name, workplace }: { admin: string; name: string; workplace: Workplace },
): Promise<RegisteredNode> {
  const { agent_id, token } = await gateway.rpc(
    "agents.register",
    { machine_name: name, version: "test" },
    admin,
  );
  return {
    agentId: agent_id,
    token,
    workplace,
    async start(env) {
      const node = startNode({ gateway: gateway.url, workplace, token, env });
      const isOnline = async () =>
        (await gateway.rpc("agents.status", { agent_id }, admin)).online as boolean;
      await until(`${name} is online`, isOnline);
      return node;
    },
  };
}

/** The engine's own process. */
export async function enginePid(workplace: Workplace, modelId: string): Promise<number> {
  const response = await askEngine(workplace, modelId, "/pids");
  return ((await response.json()) as { pid: number }).pid;
}

/** Asks an engine at its port, with the key that only the node's state file has. */
export async function askEngine({ dataDir }: Workplace, modelId: string, path: string): Promise<Response> {
  const state = (await Bun.file(join(dataDir, "state.json")).json()) as {
    deployments: { model_id: string; port: number; api_key: string }[];
  };
  const { port, api_key } = state.deployments.find(({ model_id }) => model_id === modelId)!;
  return fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization: `Bearer ${api_key}` } });
}

const DialledSocket = WebSocket as unknown as new (
  url: string,
  options?: { headers: Record<string, string> },
) => WebSocket;

export interface RawNode {
  socket: WebSocket;
  /** False: whatever comes through the tunnel is refused. */
  servesTunnel: boolean;
  /** How it answers the gateway's requests, or does by itself where it returns nothing; others it only accepts. */
  answers: Record<string, ((params: Record<string, unknown>) => unknown) | object>;
  received: {
    id?: number;
    method?: string;
    params?: Record<string, unknown>;
    result?: unknown;
    error?: { code: number; message: string };
  }[];
  send(message: unknown): void;
  notify(method: string, params: unknown): void;
  /** Sends a request and resolves with its answer. */
  call(method: string, params: unknown): Promise<RawNode["received"][number]>;
  hello(params?: Partial<HelloParams>): Promise<RawNode["received"][number]>;
  closed: Promise<{ code: number; reason: string }>;
}

export const HELLO: HelloParams = {
  version: "1.2.3",
  host: "10.9.8.7",
  gpus: [],
  models: [],
  pending: [],
  protocol: 2,
  direct: false,
  tunnel: true,
};

/** Refuses what is asked through the tunnel. */
export function refuseStreams(
  socket: WebSocket,
  message: Uint8Array,
  refusal: Parameters<typeof encodeReset>[0] = { code: "no_model", message: "not here" },
): void {
  const batch = new FrameBatch((frames) => socket.send(frames));
  for (const { type, streamId } of decodeFrames(message))
    if (type === FrameType.open) batch.add(FrameType.reset, streamId, encodeReset(refusal));
  batch.flush();
}

/** A node's end of the protocol by hand: it says what the test says, and accepts every order. */
export async function dialRaw(
  gateway: Pick<TestGateway, "url">,
  token: string,
  accept = true,
): Promise<RawNode> {
  const url = `${gateway.url.replace("http", "ws")}/ws/agent`;
  const socket = new DialledSocket(url, { headers: { authorization: `Bearer ${token}` } });
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<{ code: number; reason: string }>();
  const { promise: opened, resolve: onOpen, reject } = Promise.withResolvers<void>();
  let lastId = 0;
  const node: RawNode = {
    socket,
    servesTunnel: false,
    answers: {},
    received: [],
    closed,
    send: (message) => socket.send(typeof message === "string" ? message : JSON.stringify(message)),
    notify: (method, params) => node.send({ jsonrpc: "2.0", method, params }),
    async call(method, params) {
      const id = ++lastId;
      node.send({ jsonrpc: "2.0", id, method, params });
      const answer = () => node.received.find((message) => message.id === id && !message.method);
      await until(`${method} is answered`, () => answer() !== undefined);
      return answer()!;
    },
    hello: (params = {}) => node.call("agent.hello", { ...HELLO, ...params }),
  };
  socket.onopen = () => onOpen();
  socket.onerror = () => reject(new Error("the socket was refused"));
  socket.onclose = ({ code, reason }) => onClosed({ code, reason });
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") {
      if (!node.servesTunnel) refuseStreams(socket, new Uint8Array(data as ArrayBuffer));
      return;
    }
    const message = JSON.parse(data) as RawNode["received"][number];
    node.received.push(message);
    if (!accept || !message.method) return;
    const own = node.answers[message.method];
    const result = (typeof own === "function" ? own(message.params ?? {}) : own) ?? { ok: true };
    node.send({ jsonrpc: "2.0", id: message.id, result });
  };
  await opened;
  return node;
}

/** Lets a node made by hand carry inference to an engine; `path` replaces the one that is asked for. */
export function serveTunnel(node: RawNode, target: EngineTarget): { path: string | null } {
  const control: { path: string | null } = { path: null };
  const channel = new SocketChannel({
    send: (message) => node.socket.send(message),
    bufferedBytes: () => node.socket.bufferedAmount,
  });
  const server = new TunnelServer({
    channel,
    target: () => target,
    pathOf: (path) => control.path ?? path,
  });
  node.servesTunnel = true;
  node.socket.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") server.receive(new Uint8Array(data as ArrayBuffer));
  });
  node.socket.addEventListener("close", () => server.close());
  return control;
}
