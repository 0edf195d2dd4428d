/** Nodes without GPUs: memory, loading and ending of models as on a real one, and an engine that answers at once. */
import { TunnelServer } from "@model-gateway/agent/tunnel-server.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import type { TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, wholeStream } from "@model-gateway/testing/upstream.ts";
import { HttpOrigin } from "@model-gateway/wire/client";
import { BackendError, clientFailure } from "../../src/backends/contract.ts";
import { upstreamError } from "../../src/backends/shared/upstream-http.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { textOf } from "../support/backends.ts";
import { dialRaw, type RawNode } from "./support.ts";

const PORT = 20_000;
const HEARTBEAT_MS = 5_000;

interface Held {
  status: "loading" | "ready" | "leaving";
  needMb: number;
}

export interface SimulatedNode {
  agentId: string;
  raw: RawNode;
  held: Map<string, Held>;
  /** Models in the order in which they were loaded. */
  loaded: string[];
  /** Whether at any time it held more than it has. */
  wasOverfull: boolean;
  /** Requests of a model that it answers now. */
  streamsOf(modelId: string): number;
  stop(): void;
}

interface NodeOptions {
  admin: string;
  name: string;
  memoryMb: number;
  loadMs: number;
  needMb(modelId: string): number;
  engineUrl: string;
}

export async function simulateNode(gateway: TestGateway, options: NodeOptions): Promise<SimulatedNode> {
  const { admin, name, memoryMb, loadMs, needMb, engineUrl } = options;
  const registered = { machine_name: name, version: "1" };
  const { agent_id, token } = await gateway.rpc("agents.register", registered, admin);
  const raw = await dialRaw(gateway, token);
  const held = new Map<string, Held>();
  const usedMb = () => [...held.values()].reduce((sum, each) => sum + each.needMb, 0);
  const estimateOf = (modelId: string) => ({
    ...{ weights_mb: needMb(modelId), cache_mb: 0, overhead_mb: 0, total_mb: needMb(modelId) },
    ...{ context_tokens: null, slots: 1 },
  });
  const channel = new SocketChannel({
    send: (message) => raw.socket.send(message),
    bufferedBytes: () => raw.socket.bufferedAmount,
  });
  const tunnel = new TunnelServer({
    channel,
    target: (modelId) =>
      held.get(modelId)?.status === "ready" ? { baseUrl: engineUrl, apiKey: null } : null,
  });
  raw.servesTunnel = true;
  raw.socket.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") tunnel.receive(new Uint8Array(data as ArrayBuffer));
  });
  const report = () => ({
    gpus: [
      {
        ...{ index: 0, name: "simulated", utilization: 0 },
        ...{ memory_total_mb: memoryMb, memory_used_mb: usedMb() },
      },
    ],
    models: [...held].flatMap(([model_id, each]) =>
      each.status === "ready"
        ? { model_id, port: PORT, memory_mb: each.needMb, estimate: estimateOf(model_id) }
        : [],
    ),
    pending: [...held].flatMap(([model_id, { status }]) =>
      status === "loading" ? { model_id, status, progress: 40 } : [],
    ),
  });
  const beat = () => {
    if (raw.socket.readyState === WebSocket.OPEN) raw.notify("agent.heartbeat", report());
  };
  const node: SimulatedNode = {
    agentId: agent_id,
    raw,
    held,
    loaded: [],
    wasOverfull: false,
    streamsOf: (modelId) => tunnel.openStreamsOf(modelId),
    stop() {
      clearInterval(beating);
      raw.socket.close();
      tunnel.close();
    },
  };
  raw.answers = {
    "agent.estimate": ({ model_id }) => ({
      estimate: estimateOf(String(model_id)),
      room_mb: memoryMb - usedMb(),
    }),
    "agent.deploy": ({ model_id, stream_id }) => {
      const modelId = String(model_id);
      const load: Held = { status: "loading", needMb: needMb(modelId) };
      held.set(modelId, load);
      node.loaded.push(modelId);
      node.wasOverfull ||= usedMb() > memoryMb;
      raw.notify("agent.progress", { stream_id, model_id, status: "loading", progress: 40 });
      setTimeout(() => {
        if (held.get(modelId) !== load || load.status !== "loading") return;
        load.status = "ready";
        raw.notify("agent.progress", { stream_id, model_id, status: "ready", progress: 100, port: PORT });
        beat();
      }, loadMs);
      return undefined;
    },
    "agent.stop": ({ model_id, gently }) => {
      const modelId = String(model_id);
      const going = held.get(modelId);
      if (!going) return undefined;
      going.status = "leaving";
      const end = () => {
        if (gently && tunnel.openStreamsOf(modelId) > 0) setTimeout(end, 10);
        else if (held.get(modelId) === going) held.delete(modelId);
      };
      end();
      beat();
      return undefined;
    },
  };
  const beating = setInterval(beat, HEARTBEAT_MS);
  await raw.hello({ ...report(), direct: false });
  return node;
}

export interface FleetRun {
  nodes: number;
  models: number;
  clients: number;
  requestsEach: number;
  minimumMs: number;
  loadMs: number;
}

/** Three of the small models fit on a node, or one of the large ones; all of them together do not fit. */
const NODE_MB = 24_000;
const SIZES_MB = [8_000, 24_000, 8_000, 12_000, 12_000];

/** Every client has a session and a model of its own choice, and asks one thing after the other. */
export async function runFleet(gateway: TestGateway, admin: string, run: FleetRun) {
  const keys: string[] = [];
  // A key may ask 1,000 times a minute.
  for (let left = run.clients * run.requestsEach; left > 0; left -= 500)
    keys.push((await gateway.rpc("keys.create", { name: `key ${left}` }, admin)).key);
  const modelIds = Array.from({ length: run.models }, (_, index) => `model-${index}`);
  const needMb = (modelId: string) => SIZES_MB[modelIds.indexOf(modelId) % SIZES_MB.length]!;
  const engine = startUpstream({ models: modelIds });
  engine.answer((_, reply) => reply.stream(wholeStream(["done"])));
  const { loadMs, minimumMs } = run;
  const nodes = await Promise.all(
    Array.from({ length: run.nodes }, (_, index) =>
      simulateNode(gateway, {
        ...{ admin, name: `node-${index}`, memoryMb: NODE_MB, loadMs, needMb },
        engineUrl: engine.url,
      }),
    ),
  );
  const minutes = (ms: number) => ms / 60_000;
  for (const model_id of modelIds)
    await gateway.rpc(
      "agents.serve",
      { model_id, mode: "on_demand", minimum_minutes: minutes(minimumMs), idle_minutes: 10 },
      admin,
    );
  await until("all are listed", () => gateway.app.rooms.routing.modelCount >= run.models);
  const client = new HttpOrigin(
    {
      url: gateway.url,
      headers: { "content-type": "application/json" },
      failure: clientFailure,
      errorOf: upstreamError,
    },
    systemClock,
  );
  const statuses = new Map<string, number>();
  const warmMs: number[] = [];
  const ask = async (index: number, turn: number) => {
    const model = modelIds[(index * 7 + turn * (index % 3)) % modelIds.length]!;
    const isWarm = nodes.some(({ held }) => held.get(model)?.status === "ready");
    const body = { model, stream: true, messages: [{ role: "user", content: `${index} ${turn}` }] };
    const beganMs = performance.now();
    const outcome = await client
      .post(
        "/v1/chat/completions",
        JSON.stringify(body),
        { whenAborted() {} },
        {
          "x-session-id": `session-${index}`,
          authorization: `Bearer ${keys[index % keys.length]}`,
        },
      )
      .then(textOf)
      .then((text) => (text.endsWith("data: [DONE]\n\n") ? "answered" : text.slice(-200)))
      .catch((error: unknown) => String(error instanceof BackendError ? error.status : error));
    if (isWarm) warmMs.push(performance.now() - beganMs);
    statuses.set(outcome, (statuses.get(outcome) ?? 0) + 1);
  };
  const beganMs = Date.now();
  await Promise.all(
    Array.from({ length: run.clients }, async (_, index) => {
      for (let turn = 0; turn < run.requestsEach; turn++) await ask(index, turn);
    }),
  );
  const tookMs = Date.now() - beganMs;
  client.close();
  for (const node of nodes) node.stop();
  engine.stop();
  const loads = modelIds.map(
    (modelId) => nodes.flatMap(({ loaded }) => loaded.filter((each) => each === modelId)).length,
  );
  warmMs.sort((a, b) => a - b);
  return {
    tookMs,
    outcomes: Object.fromEntries(statuses),
    loads,
    /** The most that a model may have been loaded: once, and once more in every minimum time. */
    loadsMax: 1 + Math.ceil(tookMs / minimumMs),
    isOverfull: nodes.some(({ wasOverfull }) => wasOverfull),
    warmP99Ms: warmMs[Math.floor(warmMs.length * 0.99)] ?? 0,
  };
}
