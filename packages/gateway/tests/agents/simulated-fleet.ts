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
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { textOf } from "../support/backends.ts";
import { settled } from "../support/inference.ts";
import { dialRaw, type RawNode } from "./support.ts";

const PORT = 20_000;
const HEARTBEAT_MS = 5_000;

interface Held {
  status: "loading" | "ready" | "leaving";
  needMb: number;
}

/** `kill`: the node program ends with its engines, and its next start brings them back. `cut`: the connection breaks. */
export type NodeFault = "kill" | "cut" | "freeze";

export interface SimulatedNode {
  agentId: string;
  /** The connection that it has now. */
  raw: RawNode;
  held: Map<string, Held>;
  /** Models in the order in which they were loaded. */
  loaded: string[];
  /** Whether at any time it held more than it has. */
  wasOverfull: boolean;
  /** Requests of a model that it answers now. */
  streamsOf(modelId: string): number;
  /** Resolves when the node is back; `ms` is how long it is away, or says and reads nothing. */
  suffer(fault: NodeFault, ms: number): Promise<void>;
  beat(): void;
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
  const held = new Map<string, Held>();
  const usedMb = () => [...held.values()].reduce((sum, each) => sum + each.needMb, 0);
  const estimateOf = (modelId: string) => ({
    ...{ weights_mb: needMb(modelId), cache_mb: 0, overhead_mb: 0, total_mb: needMb(modelId) },
    ...{ context_tokens: null, slots: 1 },
  });
  let tunnel: TunnelServer;
  /** While it is frozen: what has come since. */
  let unread: MessageEvent[] | null = null;
  const connect = async (): Promise<RawNode> => {
    const raw = await dialRaw(gateway, token);
    const channel = new SocketChannel({
      send: (message) => raw.socket.readyState === WebSocket.OPEN && raw.socket.send(message),
      bufferedBytes: () => raw.socket.bufferedAmount,
    });
    tunnel = new TunnelServer({
      channel,
      target: (modelId) =>
        held.get(modelId)?.status === "ready" ? { baseUrl: engineUrl, apiKey: null } : null,
    });
    const own = tunnel;
    raw.servesTunnel = true;
    const obey = raw.socket.onmessage!;
    raw.socket.onmessage = (event) => {
      if (unread) unread.push(event);
      else if (typeof event.data === "string") obey.call(raw.socket, event);
      else own.receive(new Uint8Array(event.data as ArrayBuffer));
    };
    raw.answers = answers;
    return raw;
  };
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
  const tell = (method: string, params: unknown) => {
    if (!unread && node.raw.socket.readyState === WebSocket.OPEN) node.raw.notify(method, params);
  };
  const beat = () => tell("agent.heartbeat", report());
  const leave = () => {
    node.raw.socket.close();
    tunnel.close();
  };
  const greet = async () => {
    node.raw = await connect();
    await node.raw.hello({ ...report(), direct: false });
  };
  const load = (modelId: string, stream_id?: unknown) => {
    const loading: Held = { status: "loading", needMb: needMb(modelId) };
    held.set(modelId, loading);
    setTimeout(() => {
      if (held.get(modelId) !== loading || loading.status !== "loading") return;
      loading.status = "ready";
      const news = { model_id: modelId, status: "ready", progress: 100, port: PORT };
      if (stream_id) tell("agent.progress", { ...news, stream_id });
      beat();
    }, loadMs);
  };
  const node: SimulatedNode = {
    agentId: agent_id,
    raw: null as unknown as RawNode,
    held,
    loaded: [],
    wasOverfull: false,
    streamsOf: (modelId) => tunnel.openStreamsOf(modelId),
    beat,
    async suffer(fault, ms) {
      if (fault === "freeze") {
        unread = [];
        await Bun.sleep(ms);
        const late = unread.splice(0);
        unread = null;
        for (const event of late) node.raw.socket.onmessage!(event);
        beat();
        if (node.raw.socket.readyState !== WebSocket.OPEN) await greet();
        return;
      }
      const kept = [...held].flatMap(([modelId, { status }]) => (status === "leaving" ? [] : modelId));
      if (fault === "kill") held.clear();
      leave();
      await Bun.sleep(ms);
      if (fault === "kill") for (const modelId of kept) load(modelId);
      await greet();
    },
    stop() {
      clearInterval(beating);
      leave();
    },
  };
  const answers: RawNode["answers"] = {
    "agent.estimate": ({ model_id }) => ({
      estimate: estimateOf(String(model_id)),
      room_mb: memoryMb - usedMb(),
    }),
    "agent.deploy": ({ model_id, stream_id }) => {
      const modelId = String(model_id);
      const here = held.get(modelId);
      if (here && here.status !== "leaving") {
        beat();
        return undefined;
      }
      load(modelId, stream_id);
      node.loaded.push(modelId);
      node.wasOverfull ||= usedMb() > memoryMb;
      tell("agent.progress", { stream_id, model_id, status: "loading", progress: 40 });
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
  await greet();
  return node;
}

export interface FleetRun {
  nodes: number;
  models: number;
  clients: number;
  requestsEach: number;
  minimumMs: number;
  loadMs: number;
  /** What happens to one node after the other while the clients ask. */
  faults?: { kinds: readonly NodeFault[]; everyMs: number; awayMs: number; times?: number };
}

const describeFailure = (error: unknown): string =>
  error instanceof BackendError ? `${error.status} ${error.message}` : String(error);

/** A node that sends too much is cut off. */
const ORPHAN_BEATS = 40;
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
      .catch((error: unknown) =>
        error instanceof BackendError && error.status === 429 ? "429" : describeFailure(error),
      );
    if (isWarm) warmMs.push(performance.now() - beganMs);
    statuses.set(outcome, (statuses.get(outcome) ?? 0) + 1);
  };
  const beganMs = Date.now();
  const over = new AbortController();
  const suffered: Record<string, number> = {};
  const chaos = (async () => {
    const { kinds = [], everyMs = 0, awayMs = 0, times = Number.POSITIVE_INFINITY } = run.faults ?? {};
    for (let turn = 0; run.faults && turn < times && !over.signal.aborted; turn++) {
      const kind = kinds[turn % kinds.length]!;
      suffered[kind] = (suffered[kind] ?? 0) + 1;
      await nodes[(turn * 3) % nodes.length]!.suffer(kind, awayMs);
      await Bun.sleep(everyMs);
    }
  })();
  await Promise.all(
    Array.from({ length: run.clients }, async (_, index) => {
      for (let turn = 0; turn < run.requestsEach; turn++) await ask(index, turn);
    }),
  );
  const tookMs = Date.now() - beganMs;
  over.abort();
  await chaos;
  // What a node holds and the gateway does not know of is told to end with the node's next heartbeats.
  let asked = 0;
  const orphans = async () => {
    const records = (await gateway.rpc("agents.list", {}, admin)) as {
      agent_id: string;
      models: { model_id: string }[];
    }[];
    return nodes.flatMap(({ agentId, held, beat }) => {
      const known = records.find(({ agent_id }) => agent_id === agentId)?.models ?? [];
      const unknown = [...held.keys()].filter((id) => !known.some(({ model_id }) => model_id === id));
      if (unknown.length > 0 && asked++ % ORPHAN_BEATS === 0) beat();
      return unknown;
    });
  };
  const noOrphans = async () => (await orphans()).length === 0;
  await until("no orphan is left", noOrphans);
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
    faults: suffered,
    /** What the engine was asked to answer, over all nodes. */
    engineAsked: engine.requests.filter(({ path }) => path.endsWith("/chat/completions")).length,
    loads,
    /** The most that a model may have been loaded: once, and once more in every minimum time. */
    loadsMax: 1 + Math.ceil(tookMs / minimumMs),
    isOverfull: nodes.some(({ wasOverfull }) => wasOverfull),
    warmP99Ms: warmMs[Math.floor(warmMs.length * 0.99)] ?? 0,
  };
}

/** What the books say of chats: how many were charged, for how many tokens, and whether the ledger agrees with itself. */
export async function booksOf(gateway: TestGateway) {
  await settled(gateway);
  const { db } = gateway.app.rooms.agents.options;
  const rows = await db.all<{ status: number; completion_tokens: number }>(
    "SELECT status, completion_tokens FROM requests WHERE channel IS NOT NULL",
  );
  const { problems } = await verifyLedger(db);
  return { charged: rows.length, ok: rows.filter(({ status }) => status === 200).length, problems };
}

/**
 * The time of warm requests while models are swapped beside them, and while none are, taking turns in one run. The
 * other clients ask as much in both: for models that stay, or for models that cannot all be there at once.
 */
export async function measureBesideSwaps(
  gateway: TestGateway,
  admin: string,
  { rounds, roundMs, clients }: { rounds: number; roundMs: number; clients: number },
) {
  const keys: string[] = [];
  for (let index = 0; index < 200; index++)
    keys.push((await gateway.rpc("keys.create", { name: `warm ${index}` }, admin)).key);
  const warm = ["warm-0", "warm-1"];
  const others = ["other-0", "other-1", "other-2", "other-3"];
  const engine = startUpstream({ models: [...warm, ...others] });
  engine.answer((_, reply) => reply.stream(wholeStream(["done"])));
  const options = { admin, memoryMb: 24_000, loadMs: 100, needMb: () => 8_000, engineUrl: engine.url };
  const nodes = [
    await simulateNode(gateway, { ...options, name: "warm-node-0" }),
    await simulateNode(gateway, { ...options, name: "warm-node-1" }),
  ];
  for (const model_id of warm) await gateway.rpc("agents.serve", { model_id, mode: "always" }, admin);
  for (const model_id of others)
    await gateway.rpc(
      "agents.serve",
      { model_id, mode: "on_demand", minimum_minutes: 1 / 120, idle_minutes: 1 / 60 },
      admin,
    );
  const isThere = (modelId: string) => nodes.some(({ held }) => held.get(modelId)?.status === "ready");
  await until("the warm ones are there", () => warm.every(isThere));
  let asked = 0;
  const ask = async (model: string) => {
    const beganMs = performance.now();
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${keys[asked++ % keys.length]}` },
      body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content: String(asked) }] }),
    });
    const text = await answer.text();
    if (!text.endsWith("data: [DONE]\n\n")) throw new Error(`${model}: ${answer.status} ${text.slice(-200)}`);
    return performance.now() - beganMs;
  };
  const times = { without: [] as number[], beside: [] as number[] };
  const loads = () => nodes.reduce((sum, { loaded }) => sum + loaded.length, 0);
  let swaps = 0;
  for (let round = 0; round < rounds * 2; round++) {
    const kind = round % 2 === 0 ? "without" : "beside";
    const before = loads();
    const untilMs = Date.now() + roundMs;
    const lane = async (models: readonly string[], tell: (ms: number) => void) => {
      for (let turn = 0; Date.now() < untilMs; turn++) {
        tell(await ask(models[turn % models.length]!));
        // A client reads what it got; the machine is not to be the measure.
        await Bun.sleep(10);
      }
    };
    const beside = kind === "beside" ? others : warm;
    await Promise.all([
      ...Array.from({ length: clients }, () => lane(warm, (ms) => times[kind].push(ms))),
      ...Array.from({ length: clients }, (_, index) => lane(turned(beside, index), () => {})),
    ]);
    if (kind === "beside") swaps += loads() - before;
  }
  for (const node of nodes) node.stop();
  engine.stop();
  const at = (list: number[], share: number) =>
    list.sort((a, b) => a - b)[Math.floor(list.length * share)] ?? 0;
  const [withoutMs, besideMs] = [at(times.without, 0.99), at(times.beside, 0.99)];
  return {
    ...{ swaps, requests: { without: times.without.length, beside: times.beside.length } },
    p50Ms: { without: at(times.without, 0.5), beside: at(times.beside, 0.5) },
    p99Ms: { without: withoutMs, beside: besideMs },
    ratio: besideMs / withoutMs,
  };
}

const turned = <T>(list: readonly T[], by: number): T[] => list.map((_, i) => list[(i + by) % list.length]!);
