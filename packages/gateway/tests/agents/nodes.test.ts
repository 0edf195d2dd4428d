import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { MODELS_MAX } from "@model-gateway/protocol/agent.ts";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { failure } from "@model-gateway/testing/failure.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, wholeStream } from "@model-gateway/testing/upstream.ts";
import { chat, deployedBefore, dialRaw, follow, HELLO, type RawNode, serveTunnel } from "./support.ts";

let gateway: TestGateway;
let clock: ManualClock;
let admin: string;
beforeEach(async () => {
  clock = new ManualClock();
  gateway = await bootGateway({ overrides: { clock } });
  admin = await gateway.signIn("ada");
});
afterEach(() => gateway.stop());

const call = (method: string, params: unknown = {}) => gateway.call(method, params, admin);
const rpc = (method: string, params: unknown = {}) => gateway.rpc(method, params, admin);
async function register(machine_name: string, ...deployed: string[]) {
  const node = await rpc("agents.register", { machine_name, version: "0.1.0" });
  await deployedBefore(gateway, node.agent_id, ...deployed);
  return node as { agent_id: string; token: string };
}
const status = (agent_id: string) => rpc("agents.status", { agent_id });
const backend = (modelId: string) => gateway.app.rooms.agents.backend(modelId);
const orders = (node: RawNode, method: string) =>
  node.received.filter((message) => message.method === method);
const serving = (...ids: string[]) => ids.map((model_id, i) => ({ model_id, port: 20_000 + i }));
const gpu = (index: number, utilization: number | null, memory_used_mb: number | null) => ({
  index,
  name: "GPU",
  memory_total_mb: 80_000,
  memory_used_mb,
  utilization,
});

const METHODS: [string, object][] = [
  ["agents.list", {}],
  ["agents.register", { machine_name: "m", version: "1" }],
  ["agents.deregister", { agent_id: "x" }],
  ["agents.status", { agent_id: "x" }],
  ["agents.deploy", { model_id: "m" }],
  ["agents.fits", { model_id: "m" }],
  ["agents.log", { agent_id: "x", model_id: "m" }],
  ["agents.history", { agent_id: "x" }],
  ["agents.serve", { model_id: "m", mode: "off" }],
  ["agents.served", {}],
  ["agents.drain", { agent_id: "x" }],
  ["agents.stop", { agent_id: "x", model_id: "m" }],
];

test("all methods are for administrators", async () => {
  const member = await gateway.signIn("bob");
  for (const [method, params] of METHODS) {
    expect((await gateway.call(method, params)).error.code).toBe(-32005);
    const { error } = await gateway.call(method, params, member);
    expect(error).toMatchObject({
      code: -32007,
      message: "admin access required: only administrators manage agent nodes",
    });
  }
});

test("unknown, offline and missing nodes are -32000, a bad model id is -32602", async () => {
  const { agent_id } = await register("node");
  const none = await call("agents.deploy", { model_id: "tiny" });
  expect(none.error).toMatchObject({
    code: -32000,
    message: "No agent node is online; start one, or see agents.list",
  });
  expect((await call("agents.deploy", { model_id: "tiny", agent_id: "" })).error.code).toBe(-32000);
  expect((await call("agents.deploy", { model_id: "tiny", agent_id })).error.message).toContain(
    "node is offline",
  );
  for (const [method, params] of METHODS.slice(2).filter(([, given]) => "agent_id" in given))
    expect((await call(method, params)).error).toMatchObject({
      code: -32000,
      message: expect.stringContaining("Agent not found: x"),
    });
  for (const model_id of ["", "../etc", "a b", "-rf"])
    expect((await call("agents.deploy", { model_id, agent_id })).error.code).toBe(-32602);
});

describe("tokens", () => {
  const upgrade = (path: string, headers: Record<string, string> = {}) =>
    fetch(`${gateway.url}${path}`, {
      headers: {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        ...headers,
      },
    });

  test("a bad one is refused before the upgrade", async () => {
    await register("node");
    const bad = [
      await upgrade("/ws/agent"),
      await upgrade("/ws/agent?token=agent-nonsense"),
      await upgrade("/ws/agent", { authorization: "Bearer agent-nonsense" }),
      await upgrade("/ws/agent", { authorization: `Bearer ${admin}` }),
      await upgrade(`/ws/agent?token=${"x".repeat(5000)}`),
    ];
    for (const response of bad) {
      expect(response.status).toBe(401);
      expect((await response.json()).error).toMatchObject({ type: "auth_error", code: "unauthorized" });
    }
    expect(String(await failure(dialRaw(gateway, "agent-nonsense")))).toContain("refused");
  });

  test("it is shown once, stored hashed, taken from the header or the query, and void after deregistration", async () => {
    const { agent_id, token } = await register("node", "tiny");
    expect(JSON.stringify(await rpc("agents.list"))).not.toContain(token);
    for await (const file of new Bun.Glob("**").scan(gateway.dataDir))
      expect(
        await Bun.file(`${gateway.dataDir}/${file}`)
          .bytes()
          .then((bytes) => Buffer.from(bytes).includes(token)),
      ).toBe(false);

    const byQuery = new WebSocket(`${gateway.url.replace("http", "ws")}/ws/agent?token=${token}`);
    await new Promise((resolve, reject) => {
      byQuery.onopen = resolve;
      byQuery.onerror = reject;
    });
    const node = await dialRaw(gateway, token);
    await node.hello({ models: serving("tiny") });
    expect(backend("tiny")).not.toBeNull();

    expect(await rpc("agents.deregister", { agent_id })).toEqual({ ok: true });
    expect(await node.closed).toEqual({ code: 4003, reason: "this node was deregistered" });
    expect(backend("tiny")).toBeNull();
    expect(await rpc("agents.list")).toEqual([]);
    expect(String(await failure(dialRaw(gateway, token)))).toContain("refused");
    expect((await call("agents.deregister", { agent_id })).error.code).toBe(-32000);
  });
});

describe("state", () => {
  test("a node is listed before, during and after its connection", async () => {
    const { agent_id, token } = await register("node", "tiny", "big");
    expect(await rpc("agents.list")).toEqual([
      {
        agent_id,
        name: "node",
        version: "0.1.0",
        host: null,
        online: false,
        gpus: [],
        gpu_utilization: null,
        models: [],
        heartbeat_at: null,
        connected_at: null,
        created_at: new Date(clock.now()).toISOString(),
      },
    ]);
    const node = await dialRaw(gateway, token);
    const connectedAt = new Date(clock.now()).toISOString();
    const gpus = [gpu(0, 30, 40_000), gpu(1, null, null), gpu(2, 60, 0)];
    expect((await node.hello({ gpus })).result).toEqual({
      agent_id,
      protocol: 2,
      heartbeat_interval_ms: 10_000,
    });
    clock.advance(10_000);
    const beat = await node.call("agent.heartbeat", {
      gpus,
      models: serving("tiny"),
      pending: [{ model_id: "big", status: "downloading", progress: 12, message: "1 GiB" }],
    });
    expect(beat.result).toEqual({ ok: true });
    expect(await status(agent_id)).toMatchObject({
      version: "1.2.3",
      host: "10.9.8.7",
      online: true,
      gpu_utilization: 45,
      heartbeat_at: new Date(clock.now()).toISOString(),
      connected_at: connectedAt,
      models: [
        {
          model_id: "tiny",
          status: "ready",
          progress: 100,
          port: 20_000,
          backend: "agent-tiny",
          via: "tunnel",
        },
        { model_id: "big", status: "downloading", progress: 12, message: "1 GiB", backend: null, via: null },
      ],
    });
    const heartbeatAt = new Date(clock.now()).toISOString();
    node.socket.close();
    await until("it is offline", async () => !(await status(agent_id)).online);
    expect(await status(agent_id)).toMatchObject({
      version: "1.2.3",
      host: "10.9.8.7",
      models: [],
      heartbeat_at: heartbeatAt,
      connected_at: null,
    });
  });

  test("30 seconds without a heartbeat make a node offline and its models unroutable", async () => {
    const { agent_id, token } = await register("node", "tiny");
    const node = await dialRaw(gateway, token);
    await node.hello({ models: serving("tiny"), gpus: [gpu(0, 0, 0)] });
    clock.advance(29_000);
    expect((await status(agent_id)).online).toBe(true);
    await node.call("agent.heartbeat", { gpus: [], models: serving("tiny") });
    clock.advance(29_999);
    expect(await gateway.rpc("system.status")).toMatchObject({ agents_online: 1, models_deployed: 1 });
    clock.advance(1);
    expect((await status(agent_id)).online).toBe(false);
    clock.advance(1_000);
    expect(backend("tiny")).toBeNull();
    expect(await node.closed).toEqual({ code: 1001, reason: "no heartbeat for 30 s" });
    expect(await gateway.rpc("system.status")).toMatchObject({
      agents_online: 0,
      gpu_nodes: 0,
      models_deployed: 0,
    });
    const again = await dialRaw(gateway, token);
    await again.hello({ models: serving("tiny") });
    expect(backend("tiny")).not.toBeNull();
  });

  test("a second connection takes the place of the first, which can do nothing any more", async () => {
    const { agent_id, token } = await register("node", "tiny", "other");
    const first = await dialRaw(gateway, token);
    await first.hello({ models: serving("tiny") });
    const second = await dialRaw(gateway, token);
    expect(await first.closed).toEqual({ code: 4001, reason: "replaced by a newer connection" });
    expect(backend("tiny")).toBeNull();
    await second.hello({ models: serving("other") });
    expect(backend("tiny")).toBeNull();
    expect(backend("other")).not.toBeNull();
    expect((await status(agent_id)).models.map((model: { model_id: string }) => model.model_id)).toEqual([
      "other",
    ]);
  });

  test("models that come and go with heartbeats are routable exactly meanwhile", async () => {
    const { token } = await register("node", "a", "b");
    const node = await dialRaw(gateway, token);
    await node.hello();
    const beat = (models: unknown[]) => node.call("agent.heartbeat", { gpus: [], models });
    await beat(serving("a", "b"));
    expect([backend("a"), backend("b")].map((each) => each?.config.name)).toEqual(["agent-a", "agent-b"]);
    await beat(serving("b"));
    expect(backend("a")).toBeNull();
    expect(backend("b")).not.toBeNull();
  });
});

describe("placement", () => {
  async function connect(name: string, hello: Parameters<RawNode["hello"]>[0]): Promise<RawNode> {
    const node = await dialRaw(gateway, (await register(name, "x", "y")).token);
    await node.hello(hello);
    return node;
  }
  const placed = async (nodes: RawNode[], model_id: string) => {
    const before = nodes.map((node) => orders(node, "agent.deploy").length);
    await rpc("agents.deploy", { model_id });
    return nodes.findIndex((node, i) => orders(node, "agent.deploy").length > before[i]!);
  };

  test("of nodes that cannot tell: lowest GPU utilisation, fewest models, name; failed models take no place", async () => {
    const nodes = [
      await connect("c", { models: serving("x"), gpus: [gpu(0, 20, 0)] }),
      await connect("b", {
        gpus: [gpu(0, 20, 0)],
        pending: [{ model_id: "y", status: "failed", progress: 0 }],
      }),
      await connect("d", { gpus: [gpu(0, 10, 0)] }),
      await connect("a", { gpus: [gpu(0, null, 0)] }),
      await connect("e", { gpus: [gpu(0, 20, 0)] }),
    ];
    const take = async (modelId: string) => {
      const index = await placed(nodes, modelId);
      nodes[index]!.answers = { "agent.estimate": { estimate: null, room_mb: -1 } };
      return index;
    };
    expect(await take("m1")).toBe(2);
    expect(await take("m2")).toBe(1);
    expect(await take("m3")).toBe(4);
    expect(await take("m4")).toBe(0);
    expect(await take("m5")).toBe(3);
  });

  test("where most is left with it; a model that fits nowhere is refused with figures, unless a node is named", async () => {
    const needs = (total_mb: number, room_mb: number | null) => ({
      estimate: {
        ...{ weights_mb: total_mb - 1_500, cache_mb: 1_000, overhead_mb: 500, total_mb },
        ...{ context_tokens: 8_192, slots: 1 },
      },
      room_mb,
    });
    const nodes = [
      await connect("a", { gpus: [gpu(0, 0, 0)] }),
      await connect("b", { gpus: [gpu(0, 90, 60_000)] }),
      await connect("c", { gpus: [gpu(0, 0, 0)] }),
    ];
    const say = (...answers: object[]) => {
      for (const [index, node] of nodes.entries()) node.answers = { "agent.estimate": answers[index]! };
    };
    say(needs(16_500, 10_000), needs(16_500, 20_000), needs(16_500, 16_000));
    const options = { model_id: "m1", gpu_count: 2, context_tokens: 8_192, slots: 4 };
    expect(await rpc("agents.fits", options)).toMatchObject([
      { name: "b", fits: true, room_mb: 20_000 },
      { name: "c", fits: false },
      { name: "a", fits: false },
    ]);
    expect(orders(nodes[0]!, "agent.estimate")[0]!.params).toEqual(options);
    await rpc("agents.deploy", options);
    expect(orders(nodes[1]!, "agent.deploy")[0]!.params).toMatchObject(options);

    say(needs(16_500, 10_000), needs(16_500, 3_500), needs(17_500, 1_234));
    const { error } = await call("agents.deploy", { model_id: "m2" });
    expect(error.code).toBe(-32000);
    expect(error.message).toBe(
      "m2 fits on no node: a has room for 10,000 of 16,500 MB (weights 15,000, cache 1,000, overhead 500); " +
        "b has room for 3,500 of 16,500 MB (weights 15,000, cache 1,000, overhead 500); " +
        "c has room for 1,234 of 17,500 MB (weights 16,000, cache 1,000, overhead 500); " +
        "stop a model, lower `context_tokens` or `slots`, or name a node to try it there",
    );
    const agents = (await rpc("agents.list")) as { name: string; agent_id: string }[];
    const { agent_id } = agents.find(({ name }) => name === "a")!;
    await rpc("agents.deploy", { model_id: "m2", agent_id });
    expect(orders(nodes[0]!, "agent.deploy").length).toBe(1);
    // One that cannot tell is believed to have room.
    say({ estimate: null, room_mb: null, why: "no such model" }, needs(9_000, 1_000), needs(9_000, 1_000));
    expect(await placed(nodes, "m3")).toBe(0);
  });

  test("its engines' logs and its GPUs' last hour come from the node, which may be of another version", async () => {
    const { agent_id, token } = await register("node", "tiny");
    const log = { agent_id, model_id: "tiny" };
    expect((await call("agents.log", log)).error.message).toContain("node is offline");
    const node = await dialRaw(gateway, token);
    const points = [{ minute: 1, gpus: [{ index: 0, utilization: 5, memory_used_mb: 7 }] }];
    node.answers = { "agent.log": { text: "CUDA error" }, "agent.history": points };
    await node.hello();
    expect(await rpc("agents.log", { ...log, lines: 5 })).toEqual({ text: "CUDA error" });
    expect(await rpc("agents.history", { agent_id })).toEqual(points);
    expect(orders(node, "agent.log")[0]!.params).toEqual({ model_id: "tiny", lines: 5 });
    expect((await call("agents.log", { ...log, lines: 5_000 })).error.message).toContain("lines");
    for (const strange of [{ ok: true }, { text: "x".repeat(200_000) }, { text: 1 }, []]) {
      node.answers = { "agent.log": strange };
      const { error } = await call("agents.log", log);
      expect(error.message).toBe("The agent node's answer is not understood; update its program");
    }
  });

  test("what an engine took is shown beside what was expected", async () => {
    const { agent_id, token } = await register("node", "tiny");
    const node = await dialRaw(gateway, token);
    const estimate = {
      ...{ weights_mb: 900, cache_mb: null, overhead_mb: 645, total_mb: 1_545 },
      ...{ context_tokens: null, slots: 1 },
    };
    const model = { model_id: "tiny", port: 20_000, api_key: "secret-of-the-engine" };
    await node.hello({ models: [{ ...model, memory_mb: 1_490, estimate }] });
    // A node that is about to stop says so; its state stays what it was.
    expect((await node.call("agent.drain", {})).result).toEqual({ ok: true });
    const { models } = await status(agent_id);
    expect(models).toMatchObject([{ model_id: "tiny", memory_mb: 1_490, estimate }]);
    expect(JSON.stringify(models)).not.toContain("secret");
  });

  test("orders count from the moment they are given, before the node has said anything", async () => {
    const nodes = [await connect("a", {}), await connect("b", {})];
    await Promise.all(["m1", "m2"].map((model_id) => rpc("agents.deploy", { model_id })));
    for (const model_id of ["m3", "m4"]) await rpc("agents.deploy", { model_id });
    expect(nodes.map((node) => orders(node, "agent.deploy").length)).toEqual([2, 2]);
  });
});

describe("deployments", () => {
  async function deployed() {
    const { agent_id, token } = await register("node");
    const node = await dialRaw(gateway, token);
    await node.hello();
    const { stream_id } = await rpc("agents.deploy", { model_id: "tiny", agent_id });
    const heard = await follow(gateway, stream_id);
    const tell = (news: object) => node.call("agent.progress", { stream_id, model_id: "tiny", ...news });
    return { agent_id, token, node, stream_id, heard, tell };
  }

  test("news before the subscriber is there is not lost; a foreign stream hears nothing", async () => {
    const { agent_id, token } = await register("node");
    const node = await dialRaw(gateway, token);
    await node.hello();
    const { stream_id } = await rpc("agents.deploy", { model_id: "tiny", agent_id });
    const news = { stream_id, model_id: "tiny", status: "queued", progress: 0 };
    await node.call("agent.progress", news);
    await node.call("agent.progress", { ...news, status: "downloading", progress: 1 });
    const heard = await follow(gateway, stream_id);
    const foreign = await follow(gateway, "00000000-0000-4000-8000-000000000000");
    await node.call("agent.progress", { ...news, stream_id: "00000000-0000-4000-8000-000000000000" });
    await node.call("agent.progress", { ...news, model_id: "other", status: "failed" });
    await node.call("agent.progress", { ...news, status: "ready", progress: 100, port: 20_000 });
    await until("it is ready", () => heard.last()?.status === "ready");
    expect(heard.all).toEqual([
      { stream_id, agent_id, model_id: "tiny", status: "queued", progress: 0 },
      { stream_id, agent_id, model_id: "tiny", status: "downloading", progress: 1 },
      { stream_id, agent_id, model_id: "tiny", status: "ready", progress: 100 },
    ]);
    expect(foreign.all).toEqual([]);
    heard.stop();
    foreign.stop();
  });

  test("a model is unknown until it is ready; one that loads again is known but not reachable meanwhile", async () => {
    const { heard, tell } = await deployed();
    const { key } = await rpc("keys.create", { name: "test" });
    const ask = (provider?: string) =>
      fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "tiny", provider, messages: [{ role: "user", content: "hi" }] }),
      });
    await tell({ status: "loading", progress: 50 });
    const unknown = await ask();
    expect([unknown.status, (await unknown.json()).error.code]).toEqual([404, "model_not_found"]);
    await tell({ status: "ready", progress: 100, port: 20_000 });
    expect(backend("tiny")).not.toBeNull();
    await tell({ status: "loading", progress: 90, message: "the engine ended" });
    expect(backend("tiny")).toBeNull();
    for (const provider of [undefined, "agent-tiny", "Agent-Tiny"]) {
      const answer = await ask(provider);
      expect(answer.status).toBe(500);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
      expect((await answer.json()).error.message).toBe("all backends unhealthy for model: tiny");
    }
    const { data } = await (await fetch(`${gateway.url}/v1/models`)).json();
    expect(data.map(({ id }: { id: string }) => id)).not.toContain("tiny");
    await tell({ status: "ready", progress: 100, port: 20_000 });
    expect(backend("tiny")).not.toBeNull();
    await tell({ status: "failed", progress: 90, message: "given up" });
    expect(backend("tiny")).toBeNull();
    expect((await ask()).status).toBe(404);
    await until("the follower knows", () => heard.last()?.message === "given up");
    expect(heard.statuses()).toEqual(["loading", "ready", "loading", "ready", "failed"]);
    heard.stop();
  });

  test("a node that vanishes for good fails its deployment after a minute", async () => {
    const { heard, node, tell } = await deployed();
    await tell({ status: "downloading", progress: 40 });
    node.socket.close();
    await until("the loss is told", () => heard.last()?.message?.startsWith("the connection") === true);
    expect(heard.last()).toMatchObject({ status: "downloading", progress: 40 });
    clock.advance(60_000);
    await until("it has failed", () => heard.last()?.status === "failed");
    expect(heard.last()?.message).toBe("the node did not reconnect within 60 s");
    heard.stop();
  });

  test("a node that comes back in time goes on where it is; what it no longer has has failed", async () => {
    const { heard, node, tell, token } = await deployed();
    await tell({ status: "downloading", progress: 40 });
    node.socket.close();
    await until("the loss is told", () => heard.last()?.message !== undefined);
    clock.advance(50_000);
    const again = await dialRaw(gateway, token);
    await again.hello({ pending: [{ model_id: "tiny", status: "loading", progress: 90 }] });
    await until("it is loading", () => heard.last()?.status === "loading");
    clock.advance(10_000);
    await again.call("agent.heartbeat", { gpus: [], models: [] });
    clock.advance(10_000);
    expect(heard.last()?.status).toBe("loading");
    again.socket.close();
    const empty = await dialRaw(gateway, token);
    await empty.hello();
    await until("it has failed", () => heard.last()?.status === "failed");
    expect(heard.last()?.message).toBe("the node no longer has this model");
    heard.stop();
  });

  test("an order that the node refuses, or never answers, is -32000", async () => {
    const { agent_id, token } = await register("node");
    const node = await dialRaw(gateway, token, false);
    await node.hello();
    const answerNext = async (method: string, answer: object) => {
      await until(`${method} is ordered`, () => orders(node, method).length > 0);
      node.send({ jsonrpc: "2.0", id: orders(node, method).at(-1)!.id, ...answer });
    };
    const refused = call("agents.deploy", { model_id: "tiny", agent_id });
    await answerNext("agent.deploy", { error: { code: -32000, message: "the disk is full" } });
    expect((await refused).error).toMatchObject({
      code: -32000,
      message: "The agent node refused: the disk is full",
    });
    const silent = call("agents.stop", { model_id: "tiny", agent_id });
    await until("the order arrives", () => orders(node, "agent.stop").length > 0);
    clock.advance(10_000);
    expect((await silent).error).toMatchObject({ code: -32000 });
    const cut = call("agents.stop", { model_id: "tiny", agent_id });
    await until("the next order arrives", () => orders(node, "agent.stop").length > 1);
    node.socket.close();
    expect((await cut).error.message).toContain("connection ended");
  });
});

describe("what breaks the protocol closes the connection", () => {
  const cases: [string, (node: RawNode) => void, number][] = [
    ["no JSON", (node) => node.send("{"), 1002],
    ["no JSON-RPC", (node) => node.send({ hello: 1 }), 1002],
    ["no hello first", (node) => node.notify("agent.progress", {}), 1002],
    ["a hello that is none", (node) => node.notify("agent.hello", { ...HELLO, gpus: "many" }), 1002],
    [
      "a host that is more than one",
      (node) => node.notify("agent.hello", { ...HELLO, direct: true, host: "h/latest?x=" }),
      1002,
    ],
    [
      "a host that no node has",
      (node) => node.notify("agent.hello", { ...HELLO, direct: true, host: "0xa9fea9fe" }),
      1002,
    ],
    ["a frame that is none", (node) => node.socket.send(new Uint8Array([9, 0, 0, 0, 1, 0, 0, 0, 0])), 1002],
    [
      "a frame that only the gateway sends",
      (node) => node.socket.send(new Uint8Array([1, 0, 0, 0, 1, 0, 0, 0, 0])),
      1002,
    ],
    ["a frame too large", (node) => node.socket.send(new Uint8Array(270_000)), 1009],
    ["a message too large", (node) => node.send(`"${"x".repeat(1024 * 1024)}"`), 1009],
    [
      "a flood",
      (node) => {
        for (let i = 0; i < 2001; i++) node.send('{"jsonrpc":"2.0","id":0,"result":1}');
      },
      1008,
    ],
  ];
  test.each(cases)("%s", async (_, act, code) => {
    const { token } = await register("node");
    const node = await dialRaw(gateway, token);
    act(node);
    expect((await node.closed).code).toBe(code);
  });

  test("a node program of an older protocol is told to update; one that is only dialled has no frames", async () => {
    const { token } = await register("node");
    for (const protocol of [1, undefined]) {
      const old = await dialRaw(gateway, token);
      const why = "`protocol`: the node program speaks protocol 1 and the gateway 2: update the node program";
      expect((await old.hello({ protocol })).error?.message).toBe(why);
      expect(await old.closed).toEqual({ code: 1002, reason: why });
    }
    const dialled = await dialRaw(gateway, token);
    const hello = await dialled.hello({ protocol: undefined, tunnel: undefined, direct: true });
    expect(hello.result).toMatchObject({ protocol: 2 });
  });

  test("but a later message that is wrong is only refused, and silence before the hello has a deadline", async () => {
    const { agent_id, token } = await register("node");
    const node = await dialRaw(gateway, token);
    await node.hello();
    expect((await node.call("agent.heartbeat", { gpus: "many" })).error).toMatchObject({ code: -32602 });
    expect((await node.call("agent.explode", {})).error).toMatchObject({ code: -32601 });
    const elsewhere = {
      stream_id: "s",
      model_id: "m",
      status: "ready",
      progress: 100,
      host: "h:1/x",
      port: 1,
    };
    expect((await node.call("agent.progress", elsewhere)).error?.message).toContain("`host`: an IP address");
    expect((await status(agent_id)).online).toBe(true);

    const mute = await dialRaw(gateway, (await register("mute")).token);
    clock.advance(15_000);
    expect(await mute.closed).toEqual({ code: 1008, reason: "no agent.hello came" });
  });
});

test("a node has as many models as were deployed to it, up to a bound, however many it tells of", async () => {
  const { agent_id, token } = await register("node", "m0");
  const node = await dialRaw(gateway, token);
  await node.hello();
  const told = (model_id: string, progress: number) => ({
    stream_id: "s",
    model_id,
    status: "loading",
    progress,
  });
  for (let i = 0; i < MODELS_MAX + 20; i++) node.notify("agent.progress", told(`m${i}`, 1));
  await node.call("agent.progress", told("m0", 50));
  expect((await status(agent_id)).models).toMatchObject([{ model_id: "m0", progress: 50 }]);
  await deployedBefore(gateway, agent_id, ...Array.from({ length: MODELS_MAX - 1 }, (_, i) => `more-${i}`));
  const { error } = await call("agents.deploy", { model_id: "one-too-many", agent_id });
  expect(error).toMatchObject({
    code: -32000,
    message: expect.stringContaining("the most that are deployed"),
  });
});

test("what a tunnel refuses is an error that lets the router go on", async () => {
  const { token } = await register("node", "tiny");
  const node = await dialRaw(gateway, token);
  await node.hello({ models: serving("tiny") });
  expect(await failure(chat(backend("tiny"), "tiny"))).toMatchObject({
    name: "BackendError",
    kind: "connect",
    detail: "not here",
  });
  node.socket.close();
  await until("the model is gone", () => backend("tiny") === null);
});

/** A model is routable after the first probe of its nodes, a moment after the node said that it has it. */
const isListed = async ({ url }: TestGateway, model: string): Promise<boolean> => {
  const { data } = await (await fetch(`${url}/v1/models`)).json();
  return data.some(({ id, available }: { id: string; available: boolean }) => id === model && available);
};

test("an instance that drains lets the streams through a node's tunnel finish", async () => {
  const leaving = await bootGateway({ config: { drainGraceMs: 0 } });
  const token = await leaving.signIn("ada");
  const { key } = await leaving.rpc("keys.create", { name: "test" }, token);
  const registered = await leaving.rpc("agents.register", { machine_name: "node", version: "1" }, token);
  const engine = startUpstream({ models: ["tiny"] });
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  engine.answer(async (_, reply) => {
    const [first, ...rest] = wholeStream(["so ", "far ", "so ", "good"]);
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(first!);
    await held;
    for (const piece of rest) await reply.write(piece);
    await reply.end();
  });
  await deployedBefore(leaving, registered.agent_id, "tiny");
  const node = await dialRaw(leaving, registered.token);
  serveTunnel(node, { baseUrl: engine.url, apiKey: null });
  await node.hello({ tunnel: true, direct: false, models: serving("tiny") });
  await until("it is routable", () => isListed(leaving, "tiny"));
  const answer = await fetch(`${leaving.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", stream: true, messages: [{ role: "user", content: "hi" }] }),
  });
  expect(answer.status).toBe(200);
  const drained = leaving.app.drain();
  await until("it no longer accepts", () =>
    fetch(`${leaving.url}/healthz`).then(
      () => false,
      () => true,
    ),
  );
  release();
  expect(await answer.text()).toEndWith("data: [DONE]\n\n");
  await drained;
  expect(await node.closed).toMatchObject({ code: 1001 });
  engine.stop();
  rmSync(leaving.dataDir, { recursive: true, force: true });
});

test("a hung engine does not take the model down on the other nodes", async () => {
  const running = await bootGateway();
  const token = await running.signIn("ada");
  const { key } = await running.rpc("keys.create", { name: "test" }, token);
  const engines = [startUpstream({ models: ["tiny"] }), startUpstream({ models: ["tiny"] })];
  for (const [i, engine] of engines.entries()) {
    const registered = await running.rpc("agents.register", { machine_name: `n${i}`, version: "1" }, token);
    await deployedBefore(running, registered.agent_id, "tiny");
    const node = await dialRaw(running, registered.token);
    serveTunnel(node, { baseUrl: engine.url, apiKey: null });
    await node.hello({ tunnel: true, direct: false, models: serving("tiny") });
  }
  await until("it is routable", () => isListed(running, "tiny"));
  const { routing } = running.app.rooms;
  const entry = routing.entries.find(({ config }) => config.name === "agent-tiny")!;
  engines[0]!.listing(() => {});
  engines[0]!.answer(() => {});
  await routing.recheck(entry.backend, { yields: true });
  expect(entry.state).toBe("Healthy");
  const ask = () =>
    fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", messages: [{ role: "user", content: "hi" }] }),
    });
  // Its own deadline has passed, so it is asked nothing more.
  await until("the hung one is set aside", () => engines[0]!.probeCount >= 3);
  for (let i = 0; i < 4; i++) expect((await ask()).status).toBe(200);
  expect(engines[1]!.requests.length).toBe(4);
  for (const engine of engines) engine.stop();
  await running.stop();
}, 30_000);

test("an instance that drains sends its nodes elsewhere at once", async () => {
  const leaving = await bootGateway({ config: { drainGraceMs: 0 } });
  const token = await leaving.signIn("ada");
  const registered = await leaving.rpc("agents.register", { machine_name: "node", version: "1" }, token);
  const node = await dialRaw(leaving, registered.token);
  await node.hello();
  await leaving.app.drain();
  expect(await node.closed).toEqual({ code: 1001, reason: "this instance is stopping" });
  rmSync(leaving.dataDir, { recursive: true, force: true });
});
