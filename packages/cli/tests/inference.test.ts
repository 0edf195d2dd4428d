import { afterAll, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, type Upstream } from "../../../tests/e2e/support/upstream.ts";
import { openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let upstream: Upstream;
let shell: Shell;
beforeAll(async () => {
  upstream = startUpstream();
  gateway = await bootGateway();
  await gateway.signIn("operator");
  shell = openShell({ MODEL_GATEWAY_URL: gateway.url, SERVICE_ADMIN_TOKEN: ADMIN_TOKEN });
  await shell.run(["login", "--email", "operator@example.com"], { stdin: PASSWORD });
});
afterAll(async () => {
  shell.end();
  await gateway.stop();
  upstream.stop();
});

test("a backend is added, seen, given a route, and asked by session and by key", async () => {
  const added = await shell.run(["backends", "add", upstream.url, "--type", "external", "--name", "demo"]);
  expect(added.out).toContain("Registered demo");
  await until("a healthy backend", async () => (await shell.run(["backends"])).out.includes("serving"));
  expect((await shell.run(["models"])).out).toMatch(/demo-chat\s+demo/);
  expect((await shell.run(["routes", "set", "fast", "demo-chat"])).code).toBe(0);
  expect((await shell.run(["models"])).out).toMatch(/fast\s+demo/);

  const bySession = await shell.run(["chat", "--model", "fast", "hello", "there"]);
  expect([bySession.out, bySession.code]).toEqual(["You said: hello there\n", 0]);
  const { out: key } = await shell.run(["keys", "create", "cli"]);
  const byKey = await shell.run(["chat", "--model", "fast", "--json"], {
    stdin: "from a pipe",
    env: { MODEL_GATEWAY_KEY: key.trim() },
  });
  expect(JSON.parse(byKey.out)).toMatchObject({
    model: "fast",
    content: "You said: from a pipe",
    usage: { prompt_tokens: expect.any(Number), completion_tokens: expect.any(Number) },
  });
  // What it cost is a remark, not part of the answer.
  expect(bySession.err).toMatch(/^\d+ tokens in, \d+ out, [\d.]+ s\n$/);

  await until(
    "both usage rows",
    async () => JSON.parse((await shell.run(["usage", "--json"])).out).length === 2,
  );
  expect((await shell.run(["usage"])).out).toContain("demo-chat");
  expect((await shell.run(["usage", "--by", "model"])).out).toMatch(/demo-chat\s+2\s/);
  const byBackend = await shell.run(["usage", "--by", "backend"], { env: { SERVICE_ADMIN_TOKEN: "" } });
  expect(byBackend.out).toMatch(/^backend.*cached.*saved\ndemo\s+2\s/);
  const narrowed = async (...options: string[]) =>
    (await shell.run(["usage", ...options], { env: { SERVICE_ADMIN_TOKEN: "" } })).out;
  expect(await narrowed("--by", "key")).toMatch(/^cli [0-9a-f]{8}\s+1\s/m);
  expect(await narrowed("--by", "model", "--backend", "demo")).toMatch(/demo-chat\s+2\s/);
  for (const none of [
    ["--ref", "none"],
    ["--backend", "none"],
    ["--by", "model", "--project", "none"],
  ])
    expect(await narrowed(...none)).toMatch(/^(No requests yet|Nothing in this range)\n$/);
  expect((await shell.run(["logs", "--backend", "demo"])).out.split("\n")).toHaveLength(3);
  expect((await shell.run(["logs", "--ref", "none"])).err).toBe("No requests yet\n");
});

test("on a terminal a conversation goes on until an empty line", async () => {
  const { out, code } = await shell.onTerminal(
    ["chat", "--model", "demo-chat"],
    [
      { after: "> ", text: "first\r" },
      { after: "You said: first", text: "second\r" },
      { after: "You said: second", text: "\r" },
    ],
  );
  expect(code).toBe(0);
  expect(out).toContain("You said: second");
});

test("what cannot be done is said in the service's words", async () => {
  const unknown = await shell.run(["chat", "--model", "no-such-model", "hi"]);
  expect(unknown.code).toBe(1);
  expect(unknown.err).toContain("No backend available for model: no-such-model");
  expect((await shell.run(["backends", "remove", "nobody"])).err).toContain("there are: demo");
  expect((await shell.run(["backends", "remove", "demo"])).out).toBe("demo is removed\n");
  const nodes = await shell.run(["agents"]);
  expect([nodes.code, nodes.out]).toEqual([
    0,
    "No node is registered; add one: model-gateway agents register <name>\n",
  ]);
});
