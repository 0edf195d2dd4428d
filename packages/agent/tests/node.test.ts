import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import { LogResult, MODELS_MAX } from "@model-gateway/protocol/agent.ts";
import { type FileServer, sha256, startFileServer } from "@model-gateway/testing/file-server.ts";
import { Line } from "@model-gateway/testing/line.ts";
import {
  ENGINE,
  endNodes,
  enginesOf,
  isAlive,
  prepareWorkplace,
  type RunningNode,
  startNode,
  untilEnded,
  untilNoEngines,
  type Workplace,
} from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { readProcess, signal } from "../src/guard/processes.ts";
import { withoutSecrets } from "../src/secrets.ts";
import { type FakeGateway, startFakeGateway } from "./fake-gateway.ts";

interface Pids {
  pid: number;
  stray: number;
  weights: number;
  token: string | null;
}

const weights = crypto.getRandomValues(new Uint8Array(400_000));
let files: FileServer;
let gateway: FakeGateway;
let workplace: Workplace;
let node: RunningNode;

beforeAll(async () => {
  files = await startFileServer();
  files.put("/tiny.gguf", weights);
  files.putRepository("acme/small", { "config.json": new Uint8Array(2), "model.safetensors": weights });
});
afterAll(() => files.stop());
beforeEach(() => {
  files.requests.length = 0;
  gateway = startFakeGateway();
  workplace = prepareWorkplace({
    top: `mirror = "${files.url}"`,
    models: `
[models.tiny]
url = "${files.url}/tiny.gguf"
sha256 = "${sha256(weights)}"
[models.other]
url = "${files.url}/tiny.gguf"
sha256 = "${sha256(weights)}"
[models.wrong]
url = "${files.url}/tiny.gguf"
sha256 = "${"0".repeat(64)}"
[models.gone]
url = "${files.url}/gone.gguf"
[models.deaf]
engine = "deaf"
[engines.deaf]
command = ["sh", "-c", "echo waiting for a licence; sleep 3600"]
weights = "none"
ready_timeout_s = 0.5
[models.homeless]
path = "/no/such/weights"
[models.daemon]
engine = "daemon"
[engines.daemon]
command = ["sh", "-c", "sleep 3600 & echo gone to the background"]
weights = "none"
[models.leaky]
engine = "leaky"
[engines.leaky]
command = ["sh", "-c", "for i in $(seq 2000); do echo line $i; done; echo started with $OWN; echo $NODE_SECRET $HF_TOKEN; echo 'api_key: abcdef123'; echo https://me:hunter22@example.com; echo CUDA error: out of memory; exit 5"]
env = { OWN = "{api_key}", NODE_SECRET = "told-to-nobody" }
weights = "none"
[models.unstartable]
engine = "missing"
url = "${files.url}/tiny.gguf"
`,
  });
});
afterEach(async () => {
  await endNodes();
  gateway.stop();
  workplace.remove();
});

async function connect(env: Record<string, string | undefined> = {}): Promise<void> {
  node = startNode({ gateway: gateway.url, workplace, env });
  await until("the node says hello", () => gateway.hellos.length > 0);
}

const tunnelled = (modelId: string, path: string, init = {}) =>
  gateway.connection()!.tunnel.fetch(modelId, path, init);
const pidsOf = async (modelId: string) => (await (await tunnelled(modelId, "/pids")).json()) as Pids;
const chatBody = (stream: boolean) =>
  JSON.stringify({ model: "tiny", stream, messages: [{ role: "user", content: "good morning" }] });

test("a model is downloaded, loaded and served, directly and through the tunnel, until it is stopped", async () => {
  await connect();
  expect(gateway.hellos[0]).toMatchObject({ host: "127.0.0.1", direct: true, tunnel: true, models: [] });
  expect(gateway.hellos[0]?.gpus.map(({ index }) => index)).toEqual([0, 1, 2, 3]);

  const ready = await gateway.deploy("tiny", "s1");
  expect(gateway.statuses("s1")).toEqual(["queued", "downloading", "loading", "ready"]);
  expect(ready).toMatchObject({ model_id: "tiny", progress: 100, host: "127.0.0.1" });
  const figures = gateway.progress.map(({ progress }) => progress);
  expect(figures).toEqual([...figures].sort((a, b) => a - b));

  const base = `http://${ready.host}:${ready.port}`;
  const direct = await fetch(`${base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${ready.api_key}`, "content-type": "application/json" },
    body: chatBody(false),
  });
  expect(await direct.json()).toMatchObject({
    choices: [{ message: { content: "You said: good morning" } }],
  });
  expect((await fetch(`${base}/v1/models`)).status).toBe(401);

  const streamed = await tunnelled("tiny", "/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer of-the-caller" },
    body: chatBody(true),
  });
  expect(streamed.headers.get("content-type")).toBe("text/event-stream");
  expect(await streamed.text()).toEndWith("data: [DONE]\n\n");

  const pids = await pidsOf("tiny");
  expect(pids).toMatchObject({ weights: weights.length, token: null });
  await until("a heartbeat lists the model", () =>
    gateway.heartbeats.some(({ models }) => models.some((each) => each.model_id === "tiny")),
  );

  gateway.request("agent.stop", { model_id: "tiny" });
  await until("the model is stopped", () => gateway.statuses("s1").at(-1) === "stopped");
  expect(isAlive(pids.pid) || isAlive(pids.stray)).toBe(false);
  await until("a heartbeat no longer lists it", () => gateway.heartbeats.at(-1)?.models.length === 0);
});

test("an engine that dies comes back by itself, and leaves nothing behind", async () => {
  await connect();
  const first = await gateway.deploy("tiny", "s1");
  const before = await pidsOf("tiny");
  signal(before.pid, "SIGKILL");
  await until("it is loading again", () => gateway.statuses("s1").at(-1) === "loading");
  await until("it is ready again", () => gateway.statuses("s1").at(-1) === "ready");
  const after = await pidsOf("tiny");
  expect(after.pid).not.toBe(before.pid);
  expect(isAlive(before.stray)).toBe(false);
  expect(gateway.progress.at(-1)?.port).toBe(first.port);
  const restart = gateway.progress.find(({ message }) => message?.includes("restart 1 of 3"));
  expect(restart).toMatchObject({ status: "loading" });
  expect(files.requests.length).toBe(1);
});

test("an engine that keeps dying is given up with its last words", async () => {
  await connect();
  await gateway.deploy("tiny", "s1");
  writeFileSync(workplace.crashFile, "");
  signal((await pidsOf("tiny")).pid, "SIGKILL");
  await until("it is given up", () => gateway.statuses("s1").at(-1) === "failed");
  expect(gateway.progress.at(-1)?.message).toMatch(/code 4: out of memory, as asked.*after 3 restarts/);
  await untilNoEngines(workplace);

  rmSync(workplace.crashFile);
  expect(await gateway.deploy("tiny", "s2")).toMatchObject({ status: "ready" });
});

test("why a model failed is kept with the engine's last lines, without secrets, also over a restart", async () => {
  await connect({ HF_TOKEN: "hub-token-of-the-node" });
  const { message = "" } = await gateway.deploy("leaky");
  expect(message).toStartWith("the engine ended (code 5: CUDA error: out of memory), after 1 restarts");
  expect(message).toContain("\nline 2000\nstarted with [hidden]\n[hidden] [hidden]\n");
  expect(message).toEndWith("\napi_key: [hidden]\nhttps://[hidden]@example.com\nCUDA error: out of memory");
  expect(message.split("\n").length).toBeLessThanOrEqual(13);

  const log = async (params: object) => {
    const id = gateway.request("agent.log", params);
    await until("the log comes", () => gateway.answers.some((each) => each.id === id));
    return gateway.answers.find((each) => each.id === id)!;
  };
  const text = async (lines?: number) =>
    LogResult.parse((await log({ model_id: "leaky", lines })).result).text.split("\n");
  expect(await text(2)).toEqual(["https://[hidden]@example.com", "CUDA error: out of memory"]);
  expect([(await text()).length, (await text(1000))[0]]).toEqual([100, "line 1006"]);
  for (const secret of ["told-to-nobody", "hub-token-of-the-node", "hunter22", "abcdef123"])
    expect([message, ...(await text(1000))].join("\n")).not.toContain(secret);
  expect(await log({ model_id: "tiny" })).toMatchObject({
    error: { message: "tiny is not deployed on this node" },
  });

  node.kill("SIGKILL");
  await node.exited;
  await gateway.forgetNode();
  await connect();
  const failed = { model_id: "leaky", status: "failed", message };
  await until("it says so again", () => gateway.heartbeats.length > 0);
  expect(gateway.heartbeats.at(-1)?.pending).toMatchObject([failed]);
  // Stopping it means that nobody wants to hear of it any more.
  gateway.request("agent.stop", { model_id: "leaky" });
  await until("it is forgotten", () => gateway.heartbeats.at(-1)?.pending?.length === 0);
});

test("secrets are found by their form, and ordinary words are left", () => {
  const shown = (text: string) => withoutSecrets(text, ["s3cret!", ""]);
  for (const [text, expected] of [
    [
      "non-default args: {'api_key': ['0123456789abcdef'], 'port': 1}",
      "non-default args: {'api_key': ['[hidden]'], 'port': 1}",
    ],
    ["vllm serve --api-key 0123456789abcdef --port 1", "vllm serve --api-key [hidden] --port 1"],
    ["Authorization: Bearer abc.def-123", "Authorization: Bearer [hidden]"],
    ["pulling with hf_abcdefghijklmnopqrst", "pulling with [hidden]"],
    ["the s3cret! is out", "the [hidden] is out"],
    [
      "EOS token = 151645 '<|im_end|>', token budget exceeded",
      "EOS token = 151645 '<|im_end|>', token budget exceeded",
    ],
  ] as const) {
    expect(shown(text)).toBe(expected);
    expect(shown(shown(text))).toBe(expected);
  }
});

test("the gateway's restart does not touch a running model", async () => {
  await connect();
  await gateway.deploy("tiny");
  const before = await pidsOf("tiny");
  const { port } = gateway;
  gateway.stop();
  await until("the node notices", () => node.output().includes("trying again"));
  expect(isAlive(before.pid)).toBe(true);
  gateway = startFakeGateway({ port });
  await until("the node is back", () => gateway.hellos.length > 0);
  expect(gateway.hellos[0]?.models).toMatchObject([{ model_id: "tiny", engine: "test" }]);
  expect(await pidsOf("tiny")).toEqual(before);
});

test("a link that goes silent without closing is given up and dialled again", async () => {
  const line = await Line.open({ targetPort: gateway.port });
  node = startNode({ gateway: `ws://127.0.0.1:${line.port}`, workplace });
  await until("the node says hello", () => gateway.hellos.length === 1);
  await gateway.deploy("tiny");
  const before = await pidsOf("tiny");
  line.halfOpen();
  await until("the node is back by a new connection", () => gateway.hellos.length === 2);
  expect(node.output()).toContain("the gateway has been silent for 3 s");
  expect(await pidsOf("tiny")).toEqual(before);
  line.close();
});

test("when the node program is killed its engines end, and the next start brings them back", async () => {
  await connect();
  await Promise.all([gateway.deploy("tiny"), gateway.deploy("acme/small")]);
  const [tiny, small] = [await pidsOf("tiny"), await pidsOf("acme/small")];
  const downloads = files.requests.length;
  node.kill("SIGKILL");
  await untilNoEngines(workplace);
  await untilEnded(tiny.pid, tiny.stray, small.pid, small.stray);

  await gateway.forgetNode();
  node = startNode({ gateway: gateway.url, workplace });
  await until("both are ready again", () => gateway.heartbeats.at(-1)?.models.length === 2);
  expect(files.requests.length).toBe(downloads);
  const again = await pidsOf("tiny");
  expect(again.pid).not.toBe(tiny.pid);

  node.kill("SIGTERM");
  expect(await node.exited).toBe(0);
  expect([again.pid, again.stray].filter(isAlive)).toEqual([]);
});

test("even with its guard killed too, an engine does not outlive the node program for long", async () => {
  await connect();
  await gateway.deploy("tiny");
  const { pid, stray } = await pidsOf("tiny");
  const guard = readProcess(pid)!.parentPid;
  expect(guard).not.toBe(node.pid);
  signal(guard, "SIGSTOP");
  node.kill("SIGKILL");
  await node.exited;
  signal(guard, "SIGKILL");
  // The kernel ends the engine where setpriv is there to ask for it; the rest waits for the next start.
  await gateway.forgetNode();
  node = startNode({ gateway: gateway.url, workplace });
  await until("the model is back", () => gateway.heartbeats.at(-1)?.models.length === 1);
  await untilEnded(pid, stray);
  expect((await enginesOf(workplace)).length).toBeGreaterThan(0);
});

test("a guard that is killed alone costs a restart, not an orphan", async () => {
  await connect();
  await gateway.deploy("tiny", "s1");
  const { pid, stray } = await pidsOf("tiny");
  signal(readProcess(pid)!.parentPid, "SIGKILL");
  await until("it is ready again", () => gateway.statuses("s1").slice(-3).join() === "ready,loading,ready");
  await untilEnded(pid, stray);
});

test("two deployments of a model are one, and both are told", async () => {
  await connect();
  const [one, two] = await Promise.all([gateway.deploy("tiny", "s1"), gateway.deploy("tiny", "s2")]);
  expect(one.port).toBe(two.port!);
  expect(files.requests.length).toBe(1);
  expect(await gateway.deploy("tiny", "s3")).toMatchObject({ status: "ready", port: one.port });
  await until("one model is listed", () => gateway.heartbeats.at(-1)?.models.length === 1);
});

test("a deployment can be stopped before it is ready, and started anew at once", async () => {
  await connect();
  gateway.request("agent.deploy", { model_id: "tiny", stream_id: "s1" });
  await until("it is loading", () => gateway.statuses("s1").at(-1) === "loading");
  gateway.request("agent.stop", { model_id: "tiny" });
  const ready = await gateway.deploy("tiny", "s2");
  expect(ready.status).toBe("ready");
  expect(gateway.statuses("s1")).toEqual(["queued", "downloading", "loading", "stopped"]);
  expect((await enginesOf(workplace)).length).toBe(2);
});

test("a model that was stopped stays stopped, even if the node ends while its engine still does", async () => {
  const stubborn = `
[engines.stubborn]
command = ["sh", "-c", "trap '' TERM; exec ${process.execPath} ${ENGINE} --alias m --host {bind} --port {port}"]
weights = "none"
stop_grace_s = 20
[models.stubborn]
engine = "stubborn"
`;
  appendFileSync(workplace.configFile, stubborn);
  await connect();
  await gateway.deploy("stubborn", "s1");
  const { pid, stray } = await pidsOf("stubborn");
  const stopped = gateway.request("agent.stop", { model_id: "stubborn" });
  await until("the stop is accepted", () => gateway.answers.some(({ id }) => id === stopped));
  expect(isAlive(pid)).toBe(true);
  const told = () => gateway.heartbeats.at(-1);
  // The last heartbeat may be one from before the model was ready.
  await until("it shows as stopped", () => told()?.pending?.[0]?.status === "stopped");
  expect(told()).toMatchObject({ models: [], pending: [{ model_id: "stubborn" }] });
  node.kill("SIGKILL");
  await node.exited;
  await untilEnded(pid, stray);
  gateway.hellos.length = 0;
  await connect();
  expect(gateway.hellos[0]).toMatchObject({ models: [], pending: [] });
});

test("failed models give way to new ones before the node has more than it may report", async () => {
  await connect();
  const fail = async (modelIds: string[]) => {
    for (const model_id of modelIds) gateway.request("agent.deploy", { model_id, stream_id: model_id });
    await until("all have failed", () => modelIds.every((id) => gateway.statuses(id).at(-1) === "failed"));
  };
  await fail(Array.from({ length: MODELS_MAX }, (_, i) => `acme/unknown-${i}`));
  await fail(["acme/one-more"]);
  const told = () => gateway.heartbeats.at(-1)?.pending ?? [];
  await until("a heartbeat tells", () => told().at(-1)?.model_id === "acme/one-more");
  expect(told().length).toBe(MODELS_MAX);
  expect(told()[0]?.model_id).toBe("acme/unknown-1");
});

describe("what cannot work is said", () => {
  test("for models: no weights, wrong checksum, no engine program, no such hub id, no name", async () => {
    await connect();
    const message = async (modelId: string) => {
      const { status, message: why } = await gateway.deploy(modelId);
      expect(status).toBe("failed");
      return why ?? "";
    };
    expect(await message("gone")).toContain("HTTP 404: no such file");
    expect(await message("wrong")).toContain("checksum mismatch");
    expect(await message("unstartable")).toContain("no-such-engine-program is not installed");
    expect(await message("homeless")).toBe("path: there is nothing at /no/such/weights on this node");
    expect(await message("deaf")).toMatch(
      /not ready within 0\.5 s .*; it last wrote: waiting for a licence\), after 1 restarts/,
    );
    expect(await message("daemon")).toMatch(
      /^the engine ended \(code 0: gone to the background; it has to stay in the foreground\), after 1 restarts; its log is .*\/data\/logs\/daemon-/,
    );
    expect(await message("acme/unknown")).toContain("shows no model acme/unknown");
    expect(await message("nowhere")).toContain('give hub, url, files or path under [models."nowhere"]');

    for (const model_id of ["../../etc/passwd", "-rf", "a b", "a/../b", ""])
      gateway.request("agent.deploy", { model_id, stream_id: "bad" });
    const unknown = gateway.request("agent.explode", {});
    await until("all are refused", () => gateway.answers.some(({ id }) => id === unknown));
    const errors = gateway.answers.flatMap(({ error }) => (error ? [error.code] : []));
    expect(errors).toEqual([-32602, -32602, -32602, -32602, -32602, -32601]);
    expect(gateway.statuses("bad")).toEqual([]);
  });

  test("for connections: a refused token, an unknown host, a closed port, a second node", async () => {
    const says = async (started: RunningNode, text: string) => {
      await until(`it says ${text}`, () => started.output().includes(text));
      started.kill("SIGTERM");
      expect(await started.exited).toBe(0);
    };
    await says(
      startNode({ gateway: gateway.url, workplace, token: "wrong" }),
      "the gateway refused the token (HTTP 401)",
    );
    await says(startNode({ gateway: "wss://no-such-host.invalid", workplace }), "is not known (DNS)");
    await says(startNode({ gateway: "ws://127.0.0.1:1", workplace }), "connection refused");

    await connect();
    const second = startNode({ gateway: gateway.url, workplace });
    expect(await second.exited).toBe(2);
    expect(second.output()).toContain(`another node program (pid ${node.pid}) uses`);
    gateway.connection()?.socket.close(4001, "replaced");
    await until("it yields", () => node.output().includes("took over"));
    expect(node.output()).toMatch(/took over: give each its own; trying again in_s=(3\d|4\d|5\d|60)/);
  });
});
