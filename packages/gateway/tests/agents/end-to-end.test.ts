import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type FileServer, sha256, startFileServer } from "@model-gateway/testing/file-server.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import {
  endNodes,
  isAlive,
  prepareWorkplace,
  type RunningNode,
  untilNoEngines,
  type Workplace,
} from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { signal } from "../../../agent/src/guard/processes.ts";
import { enginePid, follow, type RegisteredNode, registerNode } from "./support.ts";

const weights = crypto.getRandomValues(new Uint8Array(400_000));
let files: FileServer;
beforeAll(async () => {
  files = await startFileServer();
  files.put("/tiny.gguf", weights);
});
afterAll(() => files.stop());

// The engines of a node listen on 127.0.0.1 only, so one that gives 127.0.0.2 as its host cannot be dialled.
const ways = [
  { via: "direct", top: "" },
  { via: "tunnel", top: 'host = "127.0.0.2"' },
];

describe.each(ways)("two nodes, reached by $via", ({ via, top }) => {
  let gateway: TestGateway;
  let admin: string;
  let key: string;
  let nodes: RegisteredNode[];
  let running: RunningNode[];
  let otherAgent: string;
  const workplaces: Workplace[] = [];

  const dataDir = mkdtempSync(join(tmpdir(), "gateway-agents-"));

  beforeAll(async () => {
    gateway = await bootGateway({ dataDir, config: { apiRateLimitRpm: 10_000 } });
    admin = await gateway.signIn("ada");
    const plan = { user_email: "ada@example.com", tier: "enterprise" };
    await gateway.rpc("billing.plan.set", plan, ADMIN_TOKEN);
    ({ key } = await gateway.rpc("keys.create", { name: "test" }, admin));
    const model = `url = "${files.url}/tiny.gguf"\nsha256 = "${sha256(weights)}"`;
    for (let i = 0; i < 2; i++)
      workplaces.push(
        prepareWorkplace({ top, models: `[models.tiny]\n${model}\n[models."acme/other"]\n${model}` }),
      );
    nodes = await Promise.all(
      workplaces.map((workplace, i) => registerNode(gateway, { admin, name: `node-${i}`, workplace })),
    );
    running = await Promise.all(nodes.map((node) => node.start()));
  });
  afterAll(async () => {
    await endNodes();
    await gateway.stop();
    for (const workplace of workplaces) workplace.remove();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const backend = (modelId: string) => gateway.app.rooms.agents.backend(modelId);
  /** A chat turn as a client of the gateway has it. */
  const ask = (model: string, stream = false) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, stream, messages: [{ role: "user", content: "good morning" }] }),
    });
  const isListed = async (model: string) => {
    const { data } = await (await fetch(`${gateway.url}/v1/models`)).json();
    return (data as { owned_by: string }[]).some(({ owned_by }) => owned_by === `agent-${model}`);
  };
  const untilAnswers = async (model: string) => {
    await until(`${model} is routable`, () => isListed(model));
    expect((await ask(model)).status).toBe(200);
  };
  const record = (agentId: string) => gateway.rpc("agents.status", { agent_id: agentId }, admin);
  const nodeOf = (agentId: string) => nodes.findIndex((node) => node.agentId === agentId);
  const deploy = async (model_id: string, agent_id?: string) => {
    const { ok, stream_id } = await gateway.rpc("agents.deploy", { model_id, agent_id }, admin);
    expect(ok).toBe(true);
    return follow(gateway, stream_id);
  };

  test("a model is deployed with progress, answers, and survives its engine, its node and a stop", async () => {
    const progress = await deploy("tiny");
    await until("it is ready", () => progress.last()?.status === "ready");
    expect(progress.statuses()).toEqual(["queued", "downloading", "loading", "ready"]);
    const { agent_id } = progress.last()!;
    const index = nodeOf(agent_id);
    const { workplace } = nodes[index]!;
    expect(progress.all[0]).toEqual({ ...progress.all[0]!, agent_id, model_id: "tiny", progress: 0 });

    expect(backend("tiny")?.config.name).toBe("agent-tiny");
    await until("it is reached as expected", async () => (await record(agent_id)).models[0]?.via === via);
    const answer = await ask("tiny");
    expect(await answer.json()).toMatchObject({
      choices: [{ message: { content: "You said: good morning" } }],
    });
    expect(await (await ask("tiny", true)).text()).toEndWith("data: [DONE]\n\n");
    expect(await isListed("tiny")).toBe(true);
    expect(await backend("tiny")!.probe(AbortSignal.timeout(5_000))).toMatchObject({
      state: "Healthy",
      models: [{ id: "tiny" }],
    });

    // The least-loaded node is now the other one.
    const other = await deploy("acme/other");
    await until("the other model is ready", () => other.last()?.status === "ready");
    otherAgent = other.last()!.agent_id;
    expect(nodeOf(otherAgent)).toBe(1 - index);
    expect(await gateway.rpc("system.status")).toMatchObject({
      agents_online: 2,
      gpu_nodes: 2,
      models_deployed: 2,
    });
    expect(await record(agent_id)).toMatchObject({
      name: `node-${index}`,
      online: true,
      models: [{ model_id: "tiny", status: "ready", backend: "agent-tiny" }],
    });

    const before = await enginePid(workplace, "tiny");
    const seen = progress.all.length;
    signal(before, "SIGKILL");
    await until("it is loading again", () =>
      progress.all.slice(seen).some(({ status }) => status === "loading"),
    );
    await until("it is ready again", () => progress.last()?.status === "ready");
    expect(await enginePid(workplace, "tiny")).not.toBe(before);
    expect((await ask("tiny")).status).toBe(200);

    running[index]!.kill("SIGKILL");
    await until("its backend is gone", () => backend("tiny") === null);
    const gone = await ask("tiny");
    expect([gone.status, (await gone.json()).error.code]).toEqual([404, "model_not_found"]);
    expect(await record(agent_id)).toMatchObject({ online: false, models: [] });
    expect(backend("acme/other")).not.toBeNull();
    await untilNoEngines(workplace);

    running[index] = await nodes[index]!.start();
    await untilAnswers("tiny");
    await until("its follower knows", () => progress.last()?.status === "ready");
    expect(progress.statuses().slice(-2)).toEqual(["loading", "ready"]);

    const pid = await enginePid(workplace, "tiny");
    expect(await gateway.rpc("agents.stop", { agent_id, model_id: "tiny" }, admin)).toEqual({
      ok: true,
      stream_id: null,
    });
    expect((await ask("tiny")).status).toBe(404);
    await until("the engine has ended", () => !isAlive(pid));
    await until("its follower knows that too", () => progress.last()?.status === "stopped");
    await untilNoEngines(workplace);
    progress.stop();
    other.stop();
  });

  test("the gateway restarts: engines go on, and their models are routable again", async () => {
    const { workplace } = nodes.find(({ agentId }) => agentId === otherAgent)!;
    const pid = await enginePid(workplace, "acme/other");
    const { port } = gateway.app;
    await gateway.stop();
    gateway = await bootGateway({ dataDir, config: { port, apiRateLimitRpm: 10_000 } });
    await untilAnswers("acme/other");
    expect(await enginePid(workplace, "acme/other")).toBe(pid);
    await until("both nodes are back", async () => (await gateway.rpc("system.status")).agents_online === 2);
  });

  test("two nodes serve one model behind one name, and either may go", async () => {
    const both = await Promise.all(nodes.map(({ agentId }) => deploy("tiny", agentId)));
    await until("both are ready", () => both.every((each) => each.last()?.status === "ready"));
    const shared = backend("tiny");
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask("tiny", true)));
    for (const answer of answers) expect(await answer.text()).toEndWith("data: [DONE]\n\n");

    await gateway.rpc("agents.stop", { agent_id: nodes[0]!.agentId, model_id: "tiny" }, admin);
    expect(backend("tiny")).toBe(shared);
    expect((await ask("tiny")).status).toBe(200);

    await gateway.rpc("agents.deregister", { agent_id: nodes[1]!.agentId }, admin);
    expect(backend("tiny")).toBeNull();
    await until("its follower knows", () => both[1]!.last()?.message === "the node was deregistered");
    await until("the node says why", () => running[1]!.output().includes("this node was deregistered"));
    expect((await gateway.rpc("agents.list", {}, admin)).map((each: { name: string }) => each.name)).toEqual([
      "node-0",
    ]);
    for (const each of both) each.stop();
  });
});
