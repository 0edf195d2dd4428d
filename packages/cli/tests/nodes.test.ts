import { afterAll, beforeAll, expect, test } from "bun:test";
import catalogue from "@model-gateway/client/node-models.json" with { type: "json" };
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { dialRaw, type RawNode } from "../../gateway/tests/agents/support.ts";
import { openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let shell: Shell;
let node: RawNode;
beforeAll(async () => {
  gateway = await bootGateway();
  await gateway.signIn("operator");
  shell = openShell({ MODEL_GATEWAY_URL: gateway.url });
  await shell.run(["login", "--email", "operator@example.com"], { stdin: PASSWORD });
  const { out } = await shell.run(["agents", "register", "rack-3"]);
  node = await dialRaw(gateway, /AGENT_TOKEN=(\S+)/.exec(out)![1]!);
  const gpu = { index: 0, name: "H200", memory_total_mb: 143_360, memory_used_mb: 71_680, utilization: 42 };
  await node.hello({ gpus: [gpu] });
});
afterAll(async () => {
  shell.end();
  node.socket.close();
  await gateway.stop();
});

const ordered = async (modelId: string) => {
  const order = () =>
    node.received.find(({ method, params }) => method === "agent.deploy" && params?.model_id === modelId);
  await until(`${modelId} is ordered`, () => order() !== undefined);
  return order()!.params!;
};

test("what there is, what it would take, and where it fits", async () => {
  const known = await shell.run(["agents", "models"]);
  expect(known.out).toMatch(/Qwen3 8B +Q4_K_M +5\.0 +40960 +Qwen\/Qwen3-8B-GGUF:Q4_K_M\n/);
  expect(known.err).toContain(`as of ${catalogue.dated}`);
  const estimate = {
    ...{ weights_mb: 15_360, cache_mb: 2_048, overhead_mb: 1_024, total_mb: 18_432 },
    ...{ context_tokens: 8_192, slots: 4 },
  };
  node.answers = { "agent.estimate": { estimate, room_mb: 10_240 } };
  const fits = await shell.run(["agents", "fits", "org/m", "--context", "8192", "--slots", "4"]);
  expect(fits.out).toMatch(
    /rack-3 +no +18\.0 GB +10\.0 GB +weights 15\.0 GB, cache 2\.0 GB \(4 × 8192 tokens\), overhead 1\.0 GB\n/,
  );
  const asked = node.received.findLast(({ method }) => method === "agent.estimate");
  expect(asked?.params).toEqual({ model_id: "org/m", context_tokens: 8_192, slots: 4 });
  node.answers = { "agent.estimate": { estimate: null, room_mb: null, why: "the hub shows no model" } };
  expect((await shell.run(["agents", "fits", "org/m"])).out).toMatch(
    /rack-3 +unknown +- +- +the hub shows no model/,
  );
});

test("a deployment shows bytes and minutes, and why it failed; the log and the node say it again", async () => {
  const options = ["--node", "rack-3", "--context", "4096", "--gpus", "1"];
  const running = shell.begin(["agents", "deploy", "org/bad", ...options]);
  const { stream_id, model_id, ...how } = await ordered("org/bad");
  expect(how).toEqual({ context_tokens: 4_096, gpu_count: 1 });
  const told = (news: object) => node.notify("agent.progress", { stream_id, model_id, ...news });
  told({ status: "downloading", progress: 40, message: "1.0 GiB of 2.0 GiB, 9.0 MiB/s, about 2 min left" });
  await running.said(/downloading: 1\.0 GiB of 2\.0 GiB, 9\.0 MiB\/s, about 2 min left 40%/);
  const message =
    "the engine ended (code 1), after 1 restarts\nloading weights\nCUDA error: \u001b[31mout of memory";
  told({ status: "failed", progress: 90, message });
  const { code, err } = await running.ended;
  expect([code, err]).toEqual([1, expect.stringContaining("org/bad: the engine ended (code 1)")]);
  expect(err).toContain("\nCUDA error: \ufffd[31mout of memory");

  const shown = await shell.run(["agents", "show", "rack-3"]);
  expect(shown.out).toContain("GPU 0: H200, load 42%, memory 70.0 GB of 140.0 GB\n");
  expect(shown.out).toContain("org/bad: failed\n  the engine ended (code 1), after 1 restarts\n");
  node.answers = { "agent.log": { text: "first\nlast" } };
  expect((await shell.run(["agents", "log", "rack-3", "org/bad", "--lines", "2"])).out).toBe("first\nlast\n");
  expect(node.received.findLast(({ method }) => method === "agent.log")?.params).toMatchObject({ lines: 2 });
  const idle = await shell.run(["agents", "log", "rack-3", "org/bad", "--node", "rack-3"]);
  expect([idle.code, idle.err]).toEqual([2, expect.stringContaining("--node has no effect with agents log")]);
});

test("models are served on demand or no more, and a node is drained", async () => {
  expect((await shell.run(["agents", "serve", "org/rare", "sometimes"])).code).toBe(2);
  expect((await shell.run(["agents", "serve", "org/rare", "on-demand"])).out).toBe(
    "org/rare is served on-demand\n",
  );
  expect((await shell.run(["agents", "serve", "org/rare", "off"])).out).toBe("org/rare is served no more\n");
  expect((await shell.run(["agents", "drain", "rack-3"])).out).toBe("rack-3 is being drained\n");
  expect((await shell.run(["agents"])).out).toMatch(/rack-3 +draining/);
  expect((await shell.run(["agents", "undrain", "rack-3"])).out).toBe("rack-3 serves again\n");
});
