/** What people install: the packages' tarballs in an empty folder, with nothing of this repository around. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { settleChat } from "@model-gateway/testing/built-gateway.ts";
import { until } from "@model-gateway/testing/until.ts";

const ROOT = join(import.meta.dir, "../..");
const folder = mkdtempSync(join(tmpdir(), "installed-"));
const PREPARE_TIMEOUT_MS = 240_000;

function run(command: string[], cwd: string): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { cwd, env: outside() });
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stdout}${stderr}`);
  return stdout.toString();
}

/** The environment without what a test of ours adds: its settings, and the Bun of this repository on the path. */
function outside(more: Record<string, string> = {}): Record<string, string> {
  const path = process.env
    .PATH!.split(":")
    .filter((dir) => !dir.includes("node_modules"))
    .join(":");
  const { HOME = "/", npm_config_cache } = process.env;
  return { PATH: path, HOME, ...(npm_config_cache && { npm_config_cache }), ...more };
}

beforeAll(() => {
  run([process.execPath, "scripts/packages/pack.ts", "--out", folder], ROOT);
  rmSync(join(folder, "npm"), { recursive: true });
  const tarballs = readdirSync(folder).filter((name) => name.endsWith(".tgz"));
  expect(tarballs.sort()).toEqual([
    "browser-tool-0.1.0.tgz",
    "model-agent-0.1.0.tgz",
    "model-gateway-0.1.0.tgz",
  ]);
  // Install scripts are off for more and more people, so the packages must do without Bun's.
  run(
    ["npm", "install", "--prefer-offline", "--ignore-scripts", ...tarballs.map((name) => `./${name}`)],
    folder,
  );
}, PREPARE_TIMEOUT_MS);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("the gateway serves its console and documentation, and ends in order on SIGTERM", async () => {
  const child = Bun.spawn(["npx", "model-gateway", "serve"], {
    cwd: folder,
    env: outside({ SERVICE_PORT: "0", SERVICE_WARM_UP: "0" }),
    stdout: "pipe",
    stderr: "pipe",
  });
  let said = "";
  const hear = async (stream: ReadableStream<Uint8Array>) => {
    for await (const chunk of stream) said += new TextDecoder().decode(chunk);
  };
  void hear(child.stdout);
  void hear(child.stderr);
  try {
    const address = () => /listening on (http:\S+)/.exec(said)?.[1];
    await until("the gateway serves", () => address() !== undefined);
    const url = address()!;
    expect(await (await fetch(`${url}/healthz`)).json()).toMatchObject({ status: "ok", version: "0.1.0" });
    const page = await (await fetch(url, { headers: { accept: "text/html" } })).text();
    const script = /src="([^"]+\.js)"/.exec(page)?.[1];
    expect((await fetch(new URL(script!, url))).status).toBe(200);
    expect(await (await fetch(`${url}/docs/quick-start.md`)).text()).toContain("# ");
    child.kill("SIGTERM");
    await until("it no longer serves", () =>
      fetch(`${url}/healthz`).then(
        () => false,
        () => true,
      ),
    );
    expect(said).toContain("draining");
  } finally {
    child.kill("SIGKILL");
  }
});

test("the gateway brings the usage of a chat into its database, in the thread whose code lies beside it", () =>
  settleChat(["npx", "model-gateway"], { dir: folder, env: outside() }));

test("programs run from their bytecode", () => {
  for (const name of ["model-gateway", "model-agent", "browser-tool"]) {
    const { stderr, stdout } = Bun.spawnSync(["npx", name, "--help"], {
      cwd: folder,
      env: outside({ BUN_JSC_verboseDiskCache: "1" }),
    });
    expect([name, `${stdout}${stderr}`]).toEqual([name, expect.stringContaining("Cache hit for sourceCode")]);
  }
});

test("the command line answers, and names what it does not know", () => {
  expect(run(["npx", "model-gateway", "--version"], folder)).toBe("0.1.0\n");
  expect(run(["npx", "model-gateway", "--help"], folder)).toContain("serve");
  const help = run(["npx", "model-gateway", "serve", "--help"], folder);
  expect(help).toContain("  model-gateway serve --demo  ");
  expect(help).not.toContain("npm start");
});

test("a program whose Bun is missing says so, and what to do", () => {
  const bun = join(folder, "node_modules/bun");
  renameSync(bun, `${bun}-away`);
  try {
    const { exitCode, stderr } = Bun.spawnSync(["npx", "model-gateway", "--version"], {
      cwd: folder,
      env: outside(),
    });
    expect({ exitCode, said: stderr.toString() }).toEqual({
      exitCode: 1,
      said: expect.stringMatching(/^No Bun for \S+ \S+ is installed beside this program; install it again/m),
    });
  } finally {
    renameSync(`${bun}-away`, bun);
  }
});

test("the node program answers, and has the guard that ends its engines beside it", () => {
  expect(run(["npx", "model-agent", "--help"], folder)).toContain("--gateway");
  const lib = join(folder, "node_modules/@model-gateway/model-agent/lib");
  expect(readdirSync(lib).sort()).toEqual([
    "engine-guard.js",
    "engine-guard.js.jsc",
    "main.js",
    "main.js.jsc",
  ]);
  expect(readFileSync(join(lib, "main.js"), "utf8")).toContain("./engine-guard.js");
});

test("the browser tool lists its tools over MCP", async () => {
  const child = Bun.spawn(["npx", "browser-tool", "mcp"], {
    cwd: folder,
    env: outside(),
    stdin: "pipe",
    stdout: "pipe",
    stderr: "ignore",
  });
  const say = (message: Record<string, unknown>) =>
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  say({
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
  });
  say({ method: "notifications/initialized" });
  say({ id: 2, method: "tools/list" });
  await child.stdin.flush();
  let heard = "";
  for await (const chunk of child.stdout) {
    heard += new TextDecoder().decode(chunk);
    if (heard.split("\n").length > 2) break;
  }
  child.stdin.end();
  const answer = JSON.parse(heard.split("\n")[1]!) as { result: { tools: { name: string }[] } };
  expect(answer.result.tools.map(({ name }) => name)).toContain("browser_navigate");
  await child.exited;
});
