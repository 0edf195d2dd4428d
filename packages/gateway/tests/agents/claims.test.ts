/** What a node's token may not do: serve what nobody deployed to it, take a backend's requests, flood the others. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { AgentPool } from "../../src/backends/agent-node/index.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { Presence } from "../../src/rooms/agents/presence.ts";
import type { NodeState } from "../../src/rooms/agents/session.ts";
import { dialRaw, HELLO, serveTunnel } from "./support.ts";

/** A chat server that counts what it was asked. */
function startServer(model: string, content: string) {
  let asked = 0;
  const server = Bun.serve({
    port: 0,
    fetch(request) {
      if (request.url.endsWith("/models")) return Response.json({ object: "list", data: [{ id: model }] });
      if (request.method === "GET") return new Response("", { status: 404 });
      asked++;
      return Response.json({
        id: "1",
        object: "chat.completion",
        model,
        choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, asked: () => asked, stop: () => server.stop(true) };
}

describe("through the door", () => {
  let gateway: TestGateway;
  let admin: string;
  let key: string;
  let operators: ReturnType<typeof startServer>;
  let evil: ReturnType<typeof startServer>;
  let node: { agent_id: string; token: string };

  beforeEach(async () => {
    operators = startServer("gpt-4o", "from the operator");
    evil = startServer("gpt-4o", "from the node");
    gateway = await bootGateway();
    admin = await gateway.signIn("ada");
    await gateway.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    ({ key } = await gateway.rpc("keys.create", { name: "test" }, admin));
    node = await gateway.rpc("agents.register", { machine_name: "node", version: "1" }, admin);
  });
  afterEach(async () => {
    await gateway.stop();
    operators.stop();
    evil.stop();
  });

  const admin_ = { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" };
  async function addBackend() {
    const added = await fetch(`${gateway.url}/api/admin/backends`, {
      method: "POST",
      headers: admin_,
      body: JSON.stringify({ type: "external", name: "operators", url: operators.url, models: ["gpt-4o"] }),
    });
    expect(added.ok).toBe(true);
    await until("it is routable", async () => (await modelIds()).includes("gpt-4o"));
  }
  const modelIds = async () =>
    ((await (await fetch(`${gateway.url}/v1/models`)).json()).data as { id: string }[]).map(({ id }) => id);
  const ask = async (model = "gpt-4o") => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "a secret prompt" }] }),
    });
    return response.ok ? (await response.json()).choices[0].message.content : response.status;
  };
  const claim = { models: [{ model_id: "gpt-4o", port: 1 }] };
  async function connect() {
    const raw = await dialRaw(gateway, node.token);
    serveTunnel(raw, { baseUrl: evil.url, apiKey: null });
    return raw;
  }

  test("a node that claims models in its hello, heartbeats or progress gets none of their requests", async () => {
    const raw = await connect();
    await raw.hello({ ...claim, pending: [{ model_id: "o3", status: "loading", progress: 1 }] });
    await raw.call("agent.heartbeat", { gpus: [], ...claim });
    await raw.call("agent.progress", {
      stream_id: "s",
      model_id: "gpt-4o",
      status: "ready",
      progress: 100,
      port: 1,
    });
    expect(await modelIds()).not.toContain("gpt-4o");
    expect(await ask()).toBe(404);
    expect((await gateway.rpc("agents.status", { agent_id: node.agent_id }, admin)).models).toEqual([]);

    // What was deployed to it is served, also after it has reconnected; once stopped, whatever it says, it is not.
    await gateway.rpc("agents.deploy", { model_id: "gpt-4o", agent_id: node.agent_id }, admin);
    await raw.call("agent.heartbeat", { gpus: [], ...claim });
    await until("it is routable", async () => (await ask()) === "from the node");
    raw.socket.close();
    const again = await connect();
    await again.hello(claim);
    await until("it is routable again", async () => (await ask()) === "from the node");
    await gateway.rpc("agents.stop", { model_id: "gpt-4o", agent_id: node.agent_id }, admin);
    await again.call("agent.heartbeat", { gpus: [], ...claim });
    expect(await ask()).toBe(404);
    const third = await connect();
    await third.hello(claim);
    expect(await ask()).toBe(404);
  });

  test("an engine whose order to stop was lost is ended when its node tells of it, and no other one is", async () => {
    const raw = await connect();
    await raw.hello();
    await gateway.rpc("agents.deploy", { model_id: "kept", agent_id: node.agent_id }, admin);
    const stops = () =>
      raw.received.filter(({ method }) => method === "agent.stop").map(({ params }) => params);
    const beat = (...models: string[]) =>
      raw.call("agent.heartbeat", {
        gpus: [],
        models: models.map((model_id, i) => ({ model_id, port: 20_000 + i })),
        pending: [
          { model_id: "ending", status: "stopped", progress: 90 },
          { model_id: "broken", status: "failed", progress: 90 },
        ],
      });
    await until("the stray ones are ended", async () => {
      await beat("kept", "stray");
      return stops().length > 0;
    });
    await until("both", () => stops().length >= 2);
    expect(stops().slice(0, 2)).toEqual([
      { model_id: "stray", gently: true },
      { model_id: "broken", gently: true },
    ]);
    // Many are told of few at a time.
    raw.received.length = 0;
    await beat("kept", ...Array.from({ length: 200 }, (_, i) => `stray-${i}`));
    await until("five are ended", () => stops().length === 5);
    expect(stops()).not.toContainEqual({ model_id: "kept", gently: true });
  });

  test("a backend's model is not shared with a node unless an administrator says so", async () => {
    const raw = await connect();
    await raw.hello();
    // Deployed while no backend had it: that the backend comes later changes nothing for its requests.
    await gateway.rpc("agents.deploy", { model_id: "gpt-4o", agent_id: node.agent_id }, admin);
    await raw.call("agent.heartbeat", { gpus: [], ...claim });
    await addBackend();
    for (let i = 0; i < 6; i++) expect(await ask()).toBe("from the operator");
    expect(evil.asked()).toBe(0);

    const refused = await gateway.call(
      "agents.deploy",
      { model_id: "gpt-4o", agent_id: node.agent_id },
      admin,
    );
    expect(refused.error).toMatchObject({
      code: -32000,
      message:
        "gpt-4o is served by the backend operators; with `beside_backends`: true the node gets a share of its requests",
    });
    const order = { model_id: "gpt-4o", agent_id: node.agent_id, beside_backends: true };
    await gateway.rpc("agents.deploy", order, admin);
    await raw.call("agent.heartbeat", { gpus: [], ...claim });
    await until("the node has its share", async () => (await ask()) === "from the node");
    expect(new Set([await ask(), await ask(), await ask()]).size).toBe(2);
  });

  test("a node cannot take a registered backend's place by the name of its model", async () => {
    await fetch(`${gateway.url}/api/admin/backends`, {
      method: "POST",
      headers: admin_,
      body: JSON.stringify({ type: "external", name: "agent-mine", url: operators.url, models: ["gpt-4o"] }),
    });
    await until("it is routable", async () => (await modelIds()).includes("gpt-4o"));
    const raw = await connect();
    await raw.hello();
    await gateway.rpc("agents.deploy", { model_id: "mine", agent_id: node.agent_id }, admin);
    await raw.call("agent.heartbeat", { gpus: [], models: [{ model_id: "mine", port: 1 }] });
    expect(await ask()).toBe("from the operator");
  });

  test.each([
    "169.254.169.254",
    "169.254.169.254.",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fe80::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "0251.0376.0251.0376",
    "metadata.google.internal",
    "Metadata.Google.Internal.",
    "metadata",
    "instance-data.ec2.internal",
  ])("the host %s is refused", async (host) => {
    const raw = await connect();
    void raw.hello({ host, direct: true }).catch(() => undefined);
    expect(await raw.closed).toMatchObject({ code: 1002, reason: expect.stringContaining("not dialled") });
  });
});

test("a host name that leads to such an address is not dialled, and a name is looked up once", async () => {
  const dialled: string[] = [];
  let lookups = 0;
  const pool = (addresses: string[]) =>
    new AgentPool({
      dialsLoopback: false,
      modelId: "m",
      resolve: async () => {
        lookups++;
        return addresses;
      },
      deps: {
        openOrigin: null,
        clock: new ManualClock(),
        ids: randomIds,
        log: silentLog,
        fetch: async (url) => {
          dialled.push(url);
          return Response.json({ data: [{ id: "m" }] });
        },
      },
    });
  const replica = {
    agentId: "a",
    host: "rebound.example.com",
    port: 80,
    apiKey: null,
    direct: true,
    tunnel: null,
    ended: new AbortController().signal,
    isLast: false,
  };
  const bad = pool(["10.0.0.1", "169.254.169.254"]);
  await bad.set(replica);
  expect([bad.size, dialled]).toEqual([0, []]);
  for (const own of ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"]) {
    const local = pool([own]);
    await local.set(replica);
    await local.set({ ...replica, host: own });
    expect([own, local.size, dialled]).toEqual([own, 0, []]);
  }
  lookups = 1;
  const good = pool(["10.0.0.1"]);
  await good.set(replica);
  await good.backend.probe(AbortSignal.timeout(1_000));
  await good.backend.probe(AbortSignal.timeout(1_000));
  expect(new Set(dialled.map((url) => new URL(url).host))).toEqual(new Set(["10.0.0.1"]));
  expect(lookups).toBe(2);
});

test("instances hear of a node's changes a few times a second, however fast it reports", async () => {
  const clock = new ManualClock();
  const bus = new InProcessBus();
  const heard: string[] = [];
  bus.subscribe("agents-presence", (text) => heard.push(text));
  const common = {
    bus,
    clock,
    log: silentLog,
    silenceMaxMs: 30_000,
    onRemoteGone() {},
    onLeft() {},
    onDeregistered() {},
  };
  const remote: NodeState[] = [];
  const one: Presence = new Presence({
    ...common,
    instance: "one",
    onAsked: () => one.announceNow(state),
    accepts: () => true,
    onRemote() {},
  });
  const models = Array.from({ length: 8 }, (_, i) => ({ model_id: `model-${i}`, port: 20_000 + i }));
  let state: NodeState = {
    agentId: "node",
    name: "node",
    epoch: 1,
    version: "1",
    ...{
      host: HELLO.host,
      direct: false,
      tunnel: true,
      gpus: [],
      models,
      pending: [],
      besideBackends: [],
      wasReady: [],
    },
    connectedAtMs: 0,
    heartbeatAtMs: 0,
  };
  const two = new Presence({
    ...common,
    instance: "two",
    onAsked() {},
    accepts: () => true,
    onRemote: (node) => remote.push(node.state),
  });
  await until("the whole is known", () => remote.length > 0);
  heard.length = 0;
  for (let i = 1; i <= 1_000; i++) {
    state = { ...state, heartbeatAtMs: i, models: models.slice(i % 3) };
    one.announce(state);
    clock.advance(1);
  }
  clock.advance(200);
  await until("the last is known", () => remote.at(-1)?.heartbeatAtMs === 1_000);
  expect(remote.at(-1)).toEqual(state);
  expect(heard.length).toBeLessThanOrEqual(7);
  one.close();
  two.close();
});
