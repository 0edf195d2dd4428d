import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromiumPath, type Site, startSite, startTool, type Tool, testEnv, until } from "./helpers.ts";
import { McpClient } from "./mcp-client.ts";

/** Never sent to its end, a paragraph at a time. */
function endless(): Response {
  const encode = (text: string) => new TextEncoder().encode(text);
  const body = new ReadableStream({
    start: (controller) => controller.enqueue(encode("<!doctype html><title>Stream</title>")),
    pull: async (controller) => {
      await Bun.sleep(50);
      controller.enqueue(encode("<p>more</p>"));
    },
  });
  return new Response(body, { headers: { "content-type": "text/html" } });
}

const pages = {
  "/": `<title>Home</title>`,
  "/loop": `<title>Loop</title><script>setTimeout(() => { document.title = 'Looping'; for (;;); }, 50)</script>`,
  "/alerts": `<title>Alerts</title><script>setTimeout(() => { for (;;) alert('again') }, 50)</script>`,
  "/stream": endless,
  "/stays": `<title>Stays</title><button>x</button><script>onbeforeunload = () => { for (;;); }; onpagehide = () => { for (;;); }</script>`,
  "/waits": `<title>Waits</title><button onclick="this.textContent = 'clicked'">x</button>`,
};

describe("a page never stands in the way", () => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool();
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });
  const open = (path: string, more = {}) => tool.post("/navigate", { url: site.url + path, ...more });

  test("one that loops, nags, streams or will not go is left at the first try", async () => {
    // Each in a session of its own, so that the waiting is done once.
    async function leave(path: string, session?: string) {
      const opened = await open(path, { session });
      if (path === "/stream") expect(opened.body.still_loading).toBe(true);
      // Without a click the browser asks no page whether it may be left.
      if (path === "/stays") await tool.post("/click", { target: "button", session });
      const { status, body } = await open("/", { timeout_ms: 10_000, session });
      return [path, opened.status, status, body.title];
    }
    const fromMs = performance.now();
    const left = await Promise.all([
      leave("/loop", "loop"),
      leave("/alerts", "alerts"),
      leave("/stream", "stream"),
      leave("/stays"),
    ]);
    expect(left).toEqual([
      ["/loop", 200, 200, "Home"],
      ["/alerts", 200, 200, "Home"],
      ["/stream", 200, 200, "Home"],
      ["/stays", 200, 200, "Home"],
    ]);
    // A page that loads for ever is told of after 10 s, one that is busy sooner; a navigation may take 30.
    expect(performance.now() - fromMs).toBeLessThan(25_000);
  }, 60_000);

  test("a caller that hangs up ends its operation", async () => {
    await open("/");
    const leaving = new AbortController();
    const asked = fetch(`${tool.url}/evaluate`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        expression: "document.title = 'asked', new Promise(() => {})",
        timeout_ms: 600_000,
      }),
      signal: leaving.signal,
    }).catch(() => null);
    const browser = await tool.session.browser();
    const page = await browser.page();
    await until(
      "the script runs",
      async () => (await page.mainFrame.call("state", [], 5_000)).title === "asked",
    );
    leaving.abort();
    await asked;
    expect(await tool.evaluate("document.title")).toBe("asked");
  }, 30_000);

  test("a batch that is cancelled takes no further step", async () => {
    await open("/waits");
    const leaving = new AbortController();
    const steps = [
      { op: "evaluate", expression: "document.title = 'asked', new Promise(() => {})", timeout_ms: 600_000 },
      { op: "click", target: "button" },
    ];
    const asked = fetch(`${tool.url}/batch`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ steps, stop_on_error: false, timeout_ms: 600_000 }),
      signal: leaving.signal,
    }).catch(() => null);
    const page = await (await tool.session.browser()).page();
    await until(
      "the script runs",
      async () => (await page.mainFrame.call("state", [], 5_000)).title === "asked",
    );
    leaving.abort();
    await asked;
    expect(await tool.evaluate("document.querySelector('button').textContent")).toBe("x");
  }, 30_000);
});

test("notifications/cancelled ends the call at once, and those behind it go on", async () => {
  const site = startSite(pages);
  const client = new McpClient();
  await client.initialize();
  await client.call("browser_navigate", { url: site.url });
  const id = client.nextId;
  let isAnswered = false;
  void client
    .send("tools/call", { name: "browser_evaluate", arguments: { function: "() => new Promise(() => {})" } })
    .then(() => {
      isAnswered = true;
    });
  const next = client.call("browser_evaluate", { function: "() => document.title" });
  client.notify("notifications/cancelled", { requestId: id, reason: "not wanted" });
  // Without the cancellation the first call would wait for 30 s.
  const first = await Promise.race([next, Bun.sleep(15_000)]);
  expect(first).toMatchObject({ text: '### Result\n"Home"' });
  expect(isAnswered).toBe(false);
  await client.end();
  await site.stop();
}, 60_000);

describe("starting", () => {
  const dir = mkdtempSync(join(tmpdir(), "fake-browser-"));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  /** A browser that says something and dies, at its start or after a while. */
  function browserThat(script: string): string {
    const path = join(dir, `browser-${Math.random().toString(36).slice(2)}`);
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
    return path;
  }
  const toolWith = (path: string) =>
    startTool({ env: { ...testEnv, BROWSER_CHROMIUM_PATH: path }, backend: "chromium" });

  test("what the browser says before it dies is part of the error", async () => {
    const tool = toolWith(browserThat("echo 'error while loading libnss3.so' >&2; exit 127"));
    const { status, body } = await tool.post("/navigate", { url: "about:blank" });
    expect([status, body.error.code]).toEqual([503, "browser_unavailable"]);
    expect(body.error.message).toContain("exited with code 127; it said: error while loading libnss3.so");
    await tool.stop();
  });

  test("a start takes no longer than the caller has", async () => {
    const tool = toolWith(browserThat("exec sleep 60"));
    const fromMs = performance.now();
    const { status, body } = await tool.post("/navigate", { url: "about:blank", timeout_ms: 300 });
    expect([status, body.error.message]).toEqual([504, expect.stringContaining("was still starting")]);
    expect(performance.now() - fromMs).toBeLessThan(3_000);
    await tool.stop();
  });

  test("also when it had been running", async () => {
    const script = `exec 9>&2; "${chromiumPath}" "$@" & pid=$!
      (while [ ! -e ${dir}/die ]; do sleep 0.05; done; echo 'FATAL: out of memory' >&9; kill -9 $pid) & wait $pid; exit 5`;
    const tool = toolWith(browserThat(script));
    expect(await tool.evaluate("1")).toBe(1);
    const pending = tool.post("/evaluate", { expression: "new Promise(() => {})" });
    writeFileSync(join(dir, "die"), "");
    const { status, body } = await pending;
    expect(status).toBe(503);
    expect(body.error.message).toContain("FATAL: out of memory");
    await tool.stop();
  }, 30_000);

  test("BROWSER_BACKEND is understood however it is written", async () => {
    const started = ["", "CHROMIUM", " Auto "].map(async (backend) => {
      const client = new McpClient([], { ...testEnv, BROWSER_BACKEND: backend });
      await client.initialize();
      const { text } = await client.call("browser_evaluate", { function: "() => 1" });
      await client.end();
      return text;
    });
    expect(await Promise.all(started)).toEqual(Array(3).fill("### Result\n1"));
  }, 60_000);

  test("the token may come from the environment, and a missing sandbox is told at the start", async () => {
    const cli = join(import.meta.dir, "../src/cli.ts");
    const child = Bun.spawn([process.execPath, cli, "debug", "--port", "0"], {
      env: { ...testEnv, BROWSER_TOKEN: "s3cret", BROWSER_NO_SANDBOX: "1" },
      stdout: "pipe",
      stderr: "pipe",
    });
    const reader = child.stdout.getReader();
    const line = new TextDecoder().decode((await reader.read()).value);
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(line)![0];
    expect((await fetch(`${url}/health`)).status).toBe(401);
    expect((await fetch(`${url}/health`, { headers: { authorization: "Bearer s3cret" } })).status).toBe(200);
    child.kill();
    expect(await new Response(child.stderr).text()).toContain(
      "without its sandbox, because BROWSER_NO_SANDBOX is set",
    );
  });

  test("an unknown backend is refused with the names that there are", async () => {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, "../src/cli.ts"), "mcp"], {
      env: { ...testEnv, BROWSER_BACKEND: "netscape" },
      stderr: "pipe",
      stdin: "ignore",
    });
    expect(await new Response(child.stderr).text()).toContain("chrome, chromium, edge, webkit, servo");
    expect(await child.exited).toBe(2);
  });
});
