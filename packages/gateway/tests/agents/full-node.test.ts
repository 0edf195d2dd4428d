/** A node that is full has not failed: requests wait, or are told to come back, and the model stays. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { decodeFrames, FrameType, parseOpen } from "@model-gateway/protocol/tunnel/frames.ts";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { type FileServer, sha256, startFileServer } from "@model-gateway/testing/file-server.ts";
import type { TestGateway } from "@model-gateway/testing/gateway.ts";
import { endNodes, prepareWorkplace, untilNoEngines } from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, wholeStream } from "@model-gateway/testing/upstream.ts";
import { HttpOrigin } from "@model-gateway/wire/client";
import { clientFailure } from "../../src/backends/contract.ts";
import { upstreamError } from "../../src/backends/shared/upstream-http.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { company, sharings } from "../instances/support.ts";
import { textOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import {
  askEngine,
  deployedBefore,
  dialRaw,
  follow,
  refuseStreams,
  registerNode,
  serveTunnel,
} from "./support.ts";

const MODEL = "tiny";
const WAITED_MS = 20;
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

/** How the model's backend stands on one instance. */
async function backendOf(gateway: Pick<TestGateway, "app">) {
  const entry = gateway.app.rooms.routing.entries.find(({ config }) => config.name === `agent-${MODEL}`);
  return entry && { state: entry.state, circuit: entry.circuits.report(Date.now()).state };
}

describe("2,000 streams at once through the node program, to an engine with 256 slots", () => {
  const STREAMS = 2_000;
  const HELD = 300;
  const KEYS = 4;
  const keys: string[] = [];
  let files: FileServer;
  let bench: InferenceBench;
  const workplaces: ReturnType<typeof prepareWorkplace>[] = [];
  beforeAll(async () => {
    files = await startFileServer();
    const weights = new Uint8Array(1_000);
    files.put("/tiny.gguf", weights);
    const model = `url = "${files.url}/tiny.gguf"\nsha256 = "${sha256(weights)}"\nargs = ["--slots", "256"]`;
    // Engines listen on 127.0.0.1 only, so that the node is reached through its tunnel.
    workplaces.push(prepareWorkplace({ top: 'host = "127.0.0.2"', models: `[models.${MODEL}]\n${model}` }));
    bench = await bootInference();
    // A key may ask 1,000 times a minute.
    for (let each = 0; each < KEYS; each++)
      keys.push((await bench.rpc("keys.create", { name: `key ${each}` }, bench.token)).key);
  });
  afterAll(async () => {
    await endNodes();
    await untilNoEngines(workplaces[0]!);
    await bench.stop();
    files.stop();
    for (const workplace of workplaces) workplace.remove();
  });

  test("none fails, and the circuit stays closed", async () => {
    const workplace = workplaces[0]!;
    const node = await registerNode(bench, { admin: bench.token, name: "node", workplace });
    // As an executable is started, which finds no settings for the runtime.
    await node.start({ BUN_CONFIG_MAX_HTTP_REQUESTS: undefined });
    const { stream_id } = await bench.rpc("agents.deploy", { model_id: MODEL }, bench.token);
    const progress = await follow(bench, stream_id);
    await until("it is ready", () => progress.last()?.status === "ready");
    progress.stop();
    await until("it is routable", async () => (await backendOf(bench))?.state === "Healthy");

    const load = async () =>
      (await askEngine(workplace, MODEL, "/load")).json() as Promise<{ open: number; waiting: number }>;
    // The runtime's `fetch` has at most 256 requests under way in a test.
    const client = new HttpOrigin(
      {
        url: bench.url,
        headers: { "content-type": "application/json" },
        failure: clientFailure,
        errorOf: upstreamError,
      },
      systemClock,
    );
    const ask = async (content: string, index: number) => {
      const body = { model: MODEL, stream: true, messages: [{ role: "user", content }] };
      const never = { whenAborted() {} };
      const headers = { authorization: `Bearer ${keys[index % KEYS]}` };
      return textOf(await client.post("/v1/chat/completions", JSON.stringify(body), never, headers));
    };
    const answers: Promise<string>[] = [];
    // The test's engine lets no more than 512 connections wait to be accepted.
    while (answers.length < STREAMS) {
      for (let each = 0; each < 125; each++)
        answers.push(ask(answers.length < HELD ? "hold" : `number ${answers.length}`, answers.length));
      const arrived = async () => (await load()).open === answers.length;
      await Promise.race([until("the engine has them", arrived), Promise.all(answers)]);
    }
    expect(await load()).toEqual({ open: STREAMS, waiting: STREAMS - 256 });
    const { backend } = bench.app.rooms.routing.entries.find(({ config }) => config.name === "agent-tiny")!;
    expect((await backend.probe(AbortSignal.timeout(5_000))).state).toBe("Healthy");
    expect(await backendOf(bench)).toEqual({ state: "Healthy", circuit: "closed" });

    await askEngine(workplace, MODEL, "/release");
    const texts = await Promise.all(answers);
    client.close();
    expect(texts.filter((text) => !text.endsWith("data: [DONE]\n\n"))).toEqual([]);
    expect(await backendOf(bench)).toEqual({ state: "Healthy", circuit: "closed" });
  });
});

/** A node made by hand that takes so many requests at once, with an engine whose answers the test lets go. */
async function smallNode(gateway: TestGateway, admin: string, streamsMax: number) {
  const engine = startUpstream({ models: [MODEL] });
  cleanup.push(() => engine.stop());
  const letGo: (() => void)[] = [];
  engine.answer(async (_, reply) => {
    await new Promise<void>((resolve) => letGo.push(resolve));
    await reply.stream(wholeStream(["done"]));
  });
  const { agent_id, token } = await gateway.rpc(
    "agents.register",
    { machine_name: "n", version: "1" },
    admin,
  );
  await deployedBefore(gateway, agent_id, MODEL);
  const raw = await dialRaw(gateway, token);
  serveTunnel(raw, { baseUrl: engine.url, apiKey: null });
  await raw.hello({ models: [{ model_id: MODEL, port: 20_000 }], streams_max: streamsMax });
  return { raw, engine, letGo };
}

const chatOn = (gateway: TestGateway, key: string) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: MODEL, stream: true, messages: [{ role: "user", content: "hi" }] }),
  });

describe.each(sharings)("a node that takes two, behind two instances %s", (sharing) => {
  test("the others wait for their turn on either instance, and a probe does not", async () => {
    const together = await company(sharing);
    cleanup.push(() => together.stop());
    const config = { apiRateLimitRpm: 10_000 };
    const gateways = await Promise.all([together.boot({ config }), together.boot({ config })]);
    cleanup.push(() => Promise.all(gateways.map((each) => each.stop())));
    const [a, b] = gateways as [TestGateway, TestGateway];
    const admin = await a.signIn("ada");
    const { key } = await a.rpc("keys.create", { name: "test" }, admin);
    const { engine, letGo } = await smallNode(a, admin, 2);
    for (const gateway of gateways)
      await until("it is routable", async () => (await backendOf(gateway))?.state === "Healthy");

    const answers = [a, b, a, b, a, b].map(async (gateway) => {
      const answer = await chatOn(gateway, key);
      return [answer.status, (await answer.text()).endsWith("data: [DONE]\n\n")];
    });
    const waiting = () => a.app.rooms.routing.router.waitingCount + b.app.rooms.routing.router.waitingCount;
    await until("four wait", () => waiting() === 4);
    const waitedSinceMs = Date.now();
    await until("they have waited", () => Date.now() - waitedSinceMs >= WAITED_MS);
    for (let served = 0; served < answers.length; served += 2) {
      await until("two are asked", () => letGo.length === 2);
      for (const gateway of gateways) {
        const backend = gateway.app.rooms.agents.backend(MODEL)!;
        expect((await backend.probe(AbortSignal.timeout(5_000))).state).toBe("Healthy");
      }
      expect(engine.requests.filter(({ method }) => method === "POST").length).toBe(served + 2);
      for (const go of letGo.splice(0)) go();
    }
    for (const answer of answers) expect(await answer).toEqual([200, true]);
    const queued = async () => {
      const { records } = await a.rpc("requests.list", { model: MODEL }, admin);
      return (records as { queue_ms: number }[]).filter(({ queue_ms }) => queue_ms >= WAITED_MS).length;
    };
    await until("the four say how long they waited", async () => (await queued()) >= 4);
    for (const gateway of gateways)
      expect(await backendOf(gateway)).toEqual({ state: "Healthy", circuit: "closed" });
  });
});

describe("a node that refuses because it is full", () => {
  test("is a 429 with Retry-After in each API's own form, opens no circuit and costs nothing", async () => {
    const clock = new ManualClock();
    const bench = await bootInference({ overrides: { clock } });
    cleanup.push(() => bench.stop());
    const { raw } = await smallNode(bench, bench.token, 2);
    await until("it is routable", async () => (await backendOf(bench))?.state === "Healthy");
    // Probes go on; requests with a body are refused as a node of an older version does.
    raw.socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") return;
      const message = new Uint8Array(data as ArrayBuffer);
      const [{ type, payload } = { type: 0, payload: message }] = decodeFrames(message);
      if (type !== FrameType.open || !parseOpen(payload).has_body) return;
      const refusal = {
        code: "too_many_streams",
        message: "this node carries at most 240 requests",
      } as const;
      refuseStreams(raw.socket, message, refusal);
    });
    /** For the one request that waits. */
    const minutePasses = async () => {
      await until("it waits", () => bench.app.rooms.routing.router.waitingCount === 1);
      for (let passed = 0; passed < 3; passed++) {
        await raw.call("agent.heartbeat", { gpus: [], models: [{ model_id: MODEL, port: 20_000 }] });
        clock.advance(20_000);
        await Bun.sleep(1);
      }
    };
    const messages = [{ role: "user", content: "hi" }];
    const surfaces: [string, object, object][] = [
      ["/v1/chat/completions", { messages }, { error: { type: "rate_limit_error", code: "backend_busy" } }],
      ["/v1/responses", { input: "hi" }, { error: { type: "rate_limit_error", code: "backend_busy" } }],
      ["/v1/messages", { messages, max_tokens: 9 }, { type: "error", error: { type: "rate_limit_error" } }],
      ["/api/chat", { messages, stream: false }, { error: expect.stringContaining("as many calls") }],
      ["/v1/embeddings", { input: "hi" }, { error: { code: "backend_busy" } }],
      ["/v1/rerank", { query: "q", documents: ["d"] }, { error: { code: "backend_busy" } }],
    ];
    for (const [path, body, expected] of surfaces) {
      const asked = bench.post(path, { model: MODEL, ...body });
      await minutePasses();
      const answer = await asked;
      expect([path, answer.status, answer.headers.get("retry-after")]).toEqual([path, 429, "1"]);
      expect(await answer.json()).toMatchObject(expected);
    }
    expect(await backendOf(bench)).toEqual({ state: "Healthy", circuit: "closed" });
    expect(await bench.usageRows()).toEqual([]);
  });
});
