import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, type Upstream } from "../../../tests/e2e/support/upstream.ts";
import { onPty, openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let upstream: Upstream;
let shell: Shell;
beforeAll(async () => {
  upstream = startUpstream();
  gateway = await bootGateway({ config: { adminToken: null } });
  await gateway.signIn("operator");
  shell = openShell();
  await shell.run(["login", "--url", gateway.url, "--email", "operator@example.com"], { stdin: PASSWORD });
  await shell.run(["backends", "add", upstream.url, "--type", "external", "--name", "demo"]);
  await until("a healthy backend", async () => (await shell.run(["backends"])).out.includes("serving"));
});
afterAll(async () => {
  shell.end();
  await gateway.stop();
  upstream.stop();
});

test("a backend is tested by its name, trial by trial, with what it would be for agents", async () => {
  const tested = await shell.run(["backends", "test", "demo", "--model", "demo-chat"]);
  expect(tested.out).toContain("Speaks chat");
  expect(tested.out).toMatch(/Claude Code [✓✗]/);
  expect(tested.out).toContain("charged to nobody here");
  expect((await shell.run(["backends"])).out).toMatch(/Claude Code [✓✗] Codex/);
  const away = await shell.run([
    "backends",
    "test",
    "http://127.0.0.1:9",
    "--type",
    "external",
    "--models",
    "x",
  ]);
  expect([away.code, away.out]).toEqual([1, expect.stringContaining("Failed: ")]);
  const dead = await shell.run([
    "backends",
    "add",
    "http://127.0.0.1:9",
    "--type",
    "external",
    "--name",
    "dead",
  ]);
  expect(dead.code).toBe(1);
  expect((await shell.run(["backends"])).out).not.toContain("dead");
  expect((await shell.run(["backends", "cards"])).out).toMatch(/azure\s+.*\{resource\}/);
  expect((await shell.run(["backends", "add", "acme"])).err).toContain("neither an address nor a provider");
});

test("people are invited, created, disabled, promoted and found", async () => {
  const invited = await shell.run(["users", "invite"]);
  expect(invited.out).toStartWith(`${gateway.url}/welcome#token=link-`);
  const made = await shell.run(["users", "create", "ada@example.com", "--name", "Ada"]);
  expect(made.err).toContain("good once");
  expect((await shell.run(["users", "disable", "ada@example.com"])).out).toContain("is disabled");
  expect((await shell.run(["users", "--search", "ada"])).out).toMatch(/ada@example\.com\s+Ada\s+disabled/);
  expect((await shell.run(["users", "enable", "ada@example.com"])).code).toBe(0);
  expect((await shell.run(["users", "promote", "ada@example.com"])).out).toContain("administrator now");
  expect((await shell.run(["users", "confirm", "ada@example.com"])).out).toContain("is confirmed");
  expect((await shell.run(["users", "tier", "ada@example.com", "pro"])).out).toContain("pro");
  expect((await shell.run(["users", "reset", "ada@example.com"])).out).toContain("/welcome#token=link-");
  const unknown = await shell.run(["users", "disable", "nobody@example.com"]);
  expect([unknown.code, unknown.err]).toEqual([
    1,
    "model-gateway users: no account is nobody@example.com; model-gateway users lists them\n",
  ]);
  expect((await shell.run(["users", "promot", "ada@example.com"])).err).toContain('did you mean "promote"?');
});

test("groups are made, joined, invited to and left", async () => {
  expect((await shell.run(["groups", "create", "Analysts"])).out).toContain("Analysts is made");
  const added = await shell.run(["groups", "add", "Analysts", "ada@example.com", "--role", "admin"]);
  expect(added.out).toBe("ada@example.com is in Analysts, as admin\n");
  const members = await shell.run(["groups", "members", "Analysts"]);
  expect(members.out).toMatch(/operator@example\.com\s+operator\s+owner\s+active/);
  expect((await shell.run(["groups", "invite", "Analysts"])).out).toContain("/join#token=");
  expect((await shell.run(["groups", "remove", "Analysts", "ada@example.com"])).code).toBe(0);
  const made = await shell.run(["keys", "create", "pooled", "--group", "Analysts", "--json"]);
  const [analysts] = JSON.parse((await shell.run(["groups", "--json"])).out);
  expect(JSON.parse(made.out)).toMatchObject({ name: "pooled", group_id: analysts.id });
  expect((await shell.run(["keys", "create", "x", "--group", "Vision"])).err).toBe(
    "model-gateway keys: no group of yours is Vision; model-gateway groups lists them\n",
  );
  // Numbers stand under each other by their last digit, to the right of their column.
  expect((await shell.run(["groups"])).out).toMatch(/^name {6}members {2}my role.*\nAnalysts {8}1 {2}owner/);
  expect((await shell.run(["groups", "add", "Analysts", "ada@example.com", "--role", "boss"])).err).toContain(
    "--role",
  );
});

test("codes are made and redeemed once", async () => {
  const made = await shell.run(["codes", "create", "2", "100", "--note", "Workshop", "--days", "30"]);
  const code = made.out.trim().split("\n")[0]!;
  expect(made.out.trim().split("\n")).toHaveLength(2);
  expect((await shell.run(["codes", "redeem", code])).out).toBe("100 points added: 100 now\n");
  expect((await shell.run(["codes"])).out).toMatch(/Workshop\s+100\s+2\s+1/);
  expect((await shell.run(["codes", "create", "none", "100"])).err).toContain("whole number");
});

test("connect prints what each program needs, with a key that works, or writes it into its file", async () => {
  const list = await shell.run(["connect"]);
  for (const name of ["claude-code", "codex", "opencode", "open-webui", "continue", "openai"])
    expect(list.out).toContain(name);
  const claude = await shell.run(["connect", "claude-code", "--model", "demo-chat"]);
  const key = /ANTHROPIC_AUTH_TOKEN='(service-[0-9a-f-]+)'/.exec(claude.out)?.[1];
  expect(claude.out).toContain(`export ANTHROPIC_BASE_URL='${gateway.url}'`);
  const asked = await fetch(`${gateway.url}/v1/messages`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "demo-chat", max_tokens: 20, messages: [{ role: "user", content: "hi" }] }),
  });
  expect(asked.status).toBe(200);

  mkdirSync(join(shell.dir, ".claude"));
  const settings = join(shell.dir, ".claude/settings.json");
  writeFileSync(settings, JSON.stringify({ theme: "dark", env: { MINE: "1" } }));
  const env = { MODEL_GATEWAY_KEY: key! };
  expect((await shell.run(["connect", "claude-code", "--write"], { env })).out).toContain(
    `wrote ${settings}`,
  );
  expect(JSON.parse(readFileSync(settings, "utf8"))).toMatchObject({
    theme: "dark",
    env: { MINE: "1", ANTHROPIC_AUTH_TOKEN: key },
  });
  const written = await shell.run(["connect", "opencode", "--write"], { env });
  expect(written.out).not.toContain(key!);
  expect(JSON.parse(readFileSync(join(shell.dir, "opencode.json"), "utf8"))).toMatchObject({
    provider: { gateway: { options: { baseURL: `${gateway.url}/v1`, apiKey: key } } },
  });

  writeFileSync(settings, "not json");
  expect((await shell.run(["connect", "claude-code", "--write"], { env })).err).toContain("is not JSON");
  expect(readFileSync(settings, "utf8")).toBe("not json");
  expect((await shell.run(["connect", "claud-code"])).err).toContain('did you mean "claude-code"?');
  expect((await shell.run(["connect", "openai", "--write"], { env })).err).toContain("leave out --write");
});

test("logs show the latest requests, whose each was, and go on with -f", async () => {
  await shell.run(["chat", "--model", "demo-chat", "one"]);
  await until("the first is there", async () => (await shell.run(["logs"])).out.includes("demo-chat"));
  const everyones = (await shell.run(["logs", "--everyone"])).out.trim().split("\n").at(-1)!;
  expect(everyones).toMatch(/ operator@example\.com .*demo-chat/);
  const id = /[0-9a-f]{8}-[0-9a-f-]{27}/.exec(everyones)![0];
  expect((await shell.run(["requests", "show", id])).out).toMatch(/^user email +operator@example\.com$/m);
  expect((await shell.run(["logs", "--user", "operator@example.com"])).out).toContain(id);
  expect((await shell.run(["logs", "--user", "ada@example.com"])).err).toContain("No requests yet");
  expect(await shell.run(["logs", "--outcome", "odd"])).toMatchObject({
    code: 2,
    err: expect.stringContaining("--outcome must be one of ok, refused, failed, left"),
  });
  const child = Bun.spawn(
    [process.execPath, join(import.meta.dir, "../src/main.ts"), "logs", "-f", "--json"],
    {
      cwd: shell.dir,
      env: { PATH: process.env.PATH!, HOME: shell.dir, XDG_CONFIG_HOME: join(shell.dir, "config") },
      stdout: "pipe",
    },
  );
  let said = "";
  void (async () => {
    for await (const chunk of child.stdout) said += new TextDecoder().decode(chunk);
  })();
  try {
    const lines = () => said.split("\n").length - 1;
    await until("what was there", () => lines() > 0);
    const before = lines();
    await shell.run(["chat", "--model", "demo-chat", "two"]);
    await until("what came later", () => lines() === before + 1);
    expect(JSON.parse(said.trim().split("\n").at(-1)!)).toMatchObject({ model: "demo-chat", outcome: "ok" });
  } finally {
    child.kill();
  }
});

test("doctor examines the service at an address, and the one that was signed in at", async () => {
  const given = await shell.run(["doctor", "--url", gateway.url]);
  expect(given.out).toContain(`service: ${gateway.url} runs version`);
  expect(given.out).toContain("session: signed in as operator@example.com");
  expect(given.out).toContain("none in trouble");
  expect(given.out).not.toContain("data directory");
  expect(given.code).toBe(0);
  const stranger = await shell.run(["doctor", "--url", gateway.url], {
    env: { XDG_CONFIG_HOME: join(shell.dir, "nobody"), MODEL_GATEWAY_KEY: "service-wrong" },
  });
  expect(stranger.out).toContain("nobody is signed in");
  expect(stranger.out).toContain("the API key is not accepted");
  expect(stranger.code).toBe(1);
  const nowhere = await shell.run(["doctor", "--url", "http://127.0.0.1:9", "--json"]);
  expect(JSON.parse(nowhere.out)).toMatchObject({
    ok: false,
    findings: [{ check: "service", state: "failed" }],
  });
  // Without an address: this machine, and the service of the login.
  const both = await shell.run(["doctor"], { env: { SERVICE_PORT: "0" } });
  expect(both.out).toContain("settings: all settings are understood");
  expect(both.out).toContain("session: signed in as");
});

test("states are coloured on a terminal, and nowhere else", async () => {
  const green = "\x1b[32mserving";
  expect((await shell.onTerminal(["backends"], [])).out).toContain(green);
  expect((await shell.run(["backends"])).out).not.toContain("\x1b");
  expect((await shell.run(["backends"], { env: { FORCE_COLOR: "1" } })).out).toContain(green);
  expect((await shell.run(["backends"], { env: { FORCE_COLOR: "1", NO_COLOR: "1" } })).out).not.toContain(
    "\x1b",
  );
});

test("ids and models are completed from the service, also behind a colon", async () => {
  await shell.run(["routes", "set", "fast:latest", "demo-chat"]);
  await shell.run(["keys", "create", "laptop"]);
  const values = async (...words: string[]) =>
    (await shell.run(["__complete", ...words])).out.trim().split("\n");
  expect(await values("chat", "--model", "")).toContain("demo-chat");
  expect(await values("keys", "revoke", "lap")).toContain("laptop");
  expect(await values("backends", "remove", "")).toEqual(["demo"]);
  expect(await values("groups", "members", "")).toEqual(["Analysts"]);
  expect(await values("users", "disable", "")).toContain("ada@example.com");
  expect(await values("connect", "")).toContain("codex");
  const nobody = await shell.run(["__complete", "keys", "revoke", ""], {
    env: { XDG_CONFIG_HOME: join(shell.dir, "nobody") },
  });
  expect([nobody.code, nobody.out, nobody.err]).toEqual([0, "", ""]);

  const bin = join(shell.dir, "bin");
  mkdirSync(bin);
  writeFileSync(
    join(bin, "model-gateway"),
    `#!/bin/sh\nexec ${process.execPath} ${join(import.meta.dir, "../src/main.ts")} "$@"\n`,
  );
  chmodSync(join(bin, "model-gateway"), 0o755);
  const { out } = await onPty({
    command: ["bash", "--norc", "--noprofile", "-i"],
    cwd: shell.dir,
    env: {
      PATH: `${bin}:${process.env.PATH}`,
      HOME: shell.dir,
      XDG_CONFIG_HOME: join(shell.dir, "config"),
      PS1: "$ ",
    },
    typed: [
      { after: "$ ", text: 'eval "$(model-gateway completion bash)"; echo set-up-$((1 + 1))\r' },
      { after: "set-up-2", text: "model-gateway chat --model fast:l\t" },
      { after: "--model fast:latest", text: "\x15exit\r" },
    ],
  });
  expect(out).toContain("model-gateway chat --model fast:latest");
});

test("prices are taken from a list, after it was shown what changes", async () => {
  const file = join(shell.dir, "prices.json");
  const entry = {
    litellm_provider: "openai",
    mode: "chat",
    input_cost_per_token: 1e-6,
    output_cost_per_token: 2e-6,
  };
  writeFileSync(
    file,
    JSON.stringify({ "demo-chat": { ...entry, cache_read_input_token_cost: 1e-7 }, other: entry }),
  );
  expect((await shell.run(["prices"])).out).toMatch(/demo-chat\s+unpriced/);
  const unasked = await shell.run(["prices", "import", file]);
  expect([unasked.code, unasked.err]).toEqual([1, expect.stringContaining("give --yes")]);
  const asked = await shell.onTerminal(["prices", "import", file], [{ after: "[y/N]", text: "n\n" }]);
  expect(asked.out).toContain("0 of 1 prices were written");
  const taken = await shell.run(["prices", "import", file, "--yes"]);
  expect(taken.out).toMatch(/demo-chat\s+unpriced\s+1\s+2\s+0\.1\s+openai\/demo-chat/);
  expect(taken.out).toContain("1 of 1 prices were written");
  expect((await shell.run(["prices"])).out).toMatch(/demo-chat\s+1\s+0\.1\s+2\s+own/);
  expect((await shell.run(["prices", "import", file, "--yes"])).out).toContain("No price changes");
  expect((await shell.run(["prices", "set", "Demo-*", "--in", "3", "--out", "4"])).out).toContain(
    "has its price",
  );
  const patterned = (await shell.run(["prices"])).out;
  expect(patterned).toMatch(/demo-slow\s+3\s+4\s+own/);
  expect(patterned).toMatch(/demo-chat\s+1\s+0\.1\s+2\s+own/);
  expect((await shell.run(["prices", "remove", "demo-*"])).out).toContain("is removed");
  writeFileSync(file, "[]");
  expect((await shell.run(["prices", "import", file])).err).toContain("is not a price list");
  expect((await shell.run(["prices", "import", "/nowhere"])).err).toContain("neither a file nor an address");
});
