/** What a coding agent reads when something is wrong: why a request failed, and where a message came from. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { callTool } from "../src/mcp/tools.ts";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const pages = {
  "/": `<title>Orders</title><button onclick="send()">Send</button><p id="out"></p><script>
    async function send() { const r = await fetch('/api/orders', { method: 'POST', headers: { 'content-type': 'application/json', 'x-trace': 'abc' }, body: JSON.stringify({ amount: -1 }) });
      out.textContent = 'status ' + r.status }</script><script src="/missing.js"></script>`,
  "/other": "<title>Other</title>other",
  "/api/orders": () =>
    Response.json({ error: "amount must be positive" }, { status: 422, headers: { "x-rule": "R7" } }),
  "/slow": `<title>Slow</title><link rel="stylesheet" href="/style.css"><h1 style="font-size: 60px">Large words</h1>
    <button onclick="outer()">Work</button><script>
    function inner() { console.warn('inner speaks'); console.log('plain'); const end = performance.now() + 120; while (performance.now() < end); }
    function outer() { inner() }
    setTimeout(() => document.body.prepend(Object.assign(document.createElement('div'), { style: 'height: 200px' })), 50)</script>`,
  "/style.css": async () => {
    await Bun.sleep(60);
    return new Response("h1 { color: red }", { headers: { "content-type": "text/css" } });
  },
};

onEachEngine("debugging", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });
  const requests = async (filter: string) =>
    (await tool.get(`/a11y?network=${encodeURIComponent(filter)}`)).body as {
      network: string[];
      snapshot: string;
    };

  const called = async (name: string, input: Record<string, unknown>) => {
    const { content } = await callTool(tool.session, name, input);
    return content[0] as { text: string };
  };

  test("the reason of a refused request can be read, by its id", async () => {
    await tool.post("/navigate", { url: `${site.url}/other` });
    await tool.post("/navigate", { url: site.url });
    await tool.post("/click", { target: "text=Send" });
    const { network, snapshot } = await requests("4xx /api/");
    expect(snapshot).toBe("");
    expect(network).toHaveLength(1);
    expect(network[0]).toMatch(/^r\d+ POST .*\/api\/orders 422 fetch \d+ ms$/);
    const details = (await requests(network[0]!.split(" ")[0]!)).network.join("\n");
    expect(details).toContain("x-rule: R7");
    if (!engine.lacks("bodies of requests")) expect(details).toContain('{"amount":-1}');
    if (!engine.lacks("bodies of fetched answers")) expect(details).toContain("amount must be positive");
    if (engine.name === "chromium") expect(details).toMatch(/began by: send @ http.*:\d+/);
  });

  test("the list is of the current document, unless all is asked for", async () => {
    await tool.post("/navigate", { url: `${site.url}/other` });
    await tool.post("/navigate", { url: site.url });
    const own = (await requests("")).network.join("\n");
    expect(own).toContain("/missing.js 404 ");
    expect(own).not.toContain("/other");
    expect((await requests("all")).network.join("\n")).toContain("/other");
  });

  const chromiumTest = test.skipIf(engine.name !== "chromium");

  chromiumTest("a trace tells what was slow, in a page load and in an action", async () => {
    const loaded = (await tool.post("/navigate", { url: `${site.url}/slow`, trace: true })).body.trace;
    const summary = loaded.summary.join("\n");
    expect(summary).toMatch(/largest contentful paint: \d+ ms/);
    expect(summary).toMatch(/requests that block drawing: 1\n {2}\d+ ms \S+\/style.css/);
    expect(JSON.parse(readFileSync(loaded.file, "utf8")).traceEvents.length).toBeGreaterThan(50);
    const { text } = await called("browser_click", { target: "text=Work", trace: true });
    expect(text).toMatch(/long tasks: \d+, \d+ ms in all\n {2}\d+ ms at \d+ ms: EventDispatch click/);
    expect(text).toContain("The whole trace: ");
  });

  chromiumTest("console messages say where they come from, errors and warnings who called", async () => {
    const { text } = await called("browser_console_messages", {});
    expect(text).toMatch(
      /\[WARNING\] inner speaks @ \S+\/slow:3:\d+\n {4}at outer \S+:4:\d+\n {4}at onclick /,
    );
    expect(text).toMatch(/\[INFO\] plain @ \S+\/slow:3:\d+(\n\S|$)/);
  });

  chromiumTest("answers are mocked, delayed and failed, and the network is slow or gone", async () => {
    await tool.post("/navigate", { url: site.url });
    const asked = (path: string) =>
      tool.evaluate(
        `fetch('${path}').then(async (r) => r.status + ' ' + r.headers.get('x-by') + ' ' + await r.text(), (e) => e.message)`,
      );
    const mocks = [
      { url: "/api/orders?page=*&n", status: 201, body: '{"mocked":true}', headers: { "x-by": "mock" } },
      { url: "/fails", fail: true },
      { url: "/other", delay_ms: 300 },
    ];
    await called("browser_resize", { mocks });
    expect(await asked("/api/orders?page=1&n=2")).toBe('201 mock {"mocked":true}');
    expect(await asked("/api/orders")).toStartWith("422 ");
    expect(await asked("/fails")).toBe("Failed to fetch");
    const fromMs = performance.now();
    expect(await asked("/other")).toContain("Other");
    expect(performance.now() - fromMs).toBeGreaterThan(290);
    await tool.post("/resize", { mocks: [], network: "offline" });
    expect(await asked("/api/orders?page=1&n=2")).toBe("Failed to fetch");
    await tool.post("/resize", { network: "slow" });
    const slowMs = performance.now();
    expect(await asked("/fails")).toStartWith("404 ");
    expect(performance.now() - slowMs).toBeGreaterThan(390);
    await tool.post("/resize", { network: "online" });
    expect(await asked("/api/orders?page=1&n=2")).toStartWith("422 ");
  });

  chromiumTest("a PDF and a video are files", async () => {
    const fileOf = (text: string) => readFileSync(/Written to (.*)/.exec(text)![1]!);
    expect(fileOf((await called("browser_screenshot", { type: "pdf" })).text).toString("latin1")).toStartWith(
      "%PDF",
    );
    expect((await called("browser_screenshot", { type: "video" })).text).toContain("has begun");
    for (const color of ["red", "green", "blue"]) {
      await tool.evaluate(`document.body.style.background = '${color}'`);
      await Bun.sleep(150);
    }
    const video = fileOf((await called("browser_screenshot", { type: "video" })).text);
    expect(video.toString("latin1", 0, 12)).toBe(`RIFF${video.toString("latin1", 4, 8)}AVI `);
    expect(video.readUInt32LE(4)).toBe(video.length - 8);
    const frames = video.readUInt32LE(48);
    expect(frames).toBeGreaterThan(2);
    const at = video.indexOf("idx1");
    expect(video.readUInt32LE(at + 4)).toBe(frames * 16);
    const movi = video.indexOf("movi");
    for (let i = 0; i < frames; i++) {
      const place = movi + video.readUInt32LE(at + 8 + i * 16 + 8);
      expect(video.toString("latin1", place, place + 4)).toBe("00dc");
      // Each is a whole JPEG.
      expect(video.readUInt16BE(place + 8)).toBe(0xffd8);
    }
  });

  if (engine.name === "webkit")
    test("what only a Chromium can do is refused by name", async () => {
      await tool.post("/navigate", { url: site.url });
      for (const [path, body, what] of [
        ["/resize", { mocks: [{ url: "/api", body: "made up" }] }, "Answering in place of servers"],
        ["/resize", { network: "offline" }, "A slow network or none"],
        ["/screenshot", { type: "video" }, "A video"],
        ["/navigate", { url: site.url, trace: true }, "Tracing.start"],
        ["/navigate", { url: site.url, session: "apart" }, "Target.createBrowserContext"],
      ] as const) {
        const { status, body: answer } = await tool.post(path, body);
        expect([status, answer.error.message]).toEqual([501, expect.stringContaining(what)]);
      }
    });
});
