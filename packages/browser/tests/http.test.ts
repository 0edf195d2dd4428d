import { afterAll, beforeAll, expect, test } from "bun:test";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { operations } from "../src/operations/index.ts";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

onEachEngine("the debug API", (engine) => {
  let tool: Tool;
  let site: Site;
  let sockets: Bun.Server<undefined>;
  beforeAll(() => {
    tool = startTool({ engine });
    sockets = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: (request, server) => (server.upgrade(request) ? undefined : new Response("no")),
      websocket: { message: (socket, text) => void socket.send(`echo ${text}`) },
    });
    site = startSite({
      "/": `<title>Home</title><h1>Home</h1><div style="height:3000px">tall</div><button id="b" style="width:40px;height:20px">b</button>`,
      "/noise": () =>
        new Response(
          `<!doctype html><title>Noise</title><script>
          console.log('plain', 1, {a: 1}, [2]); console.warn('careful'); console.error('bad'); console.debug('fine');
          fetch('/data.json', {method: 'POST', body: 'sent'}); fetch('/missing');
          const ws = new WebSocket('ws://127.0.0.1:${sockets.port}/'); ws.onopen = () => ws.send('hi');
          ws.onmessage = () => { document.title = 'Echoed'; setTimeout(() => { throw new Error('thrown later') }) };
          new Worker(URL.createObjectURL(new Blob(['console.log("from worker")'])));
          </script>`,
          { headers: { "content-type": "text/html" } },
        ),
      "/data.json": () => Response.json({ secret: 42 }),
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    await sockets.stop(true);
  });

  test("health does not start the browser, info tells about it", async () => {
    const fresh = startTool({ engine });
    expect((await fresh.get("/health")).body).toMatchObject({ status: "ok", browser_running: false });
    expect((await fresh.get("/info")).body).toMatchObject({ running: false, backend: engine.name });
    expect((await fresh.get("/health")).body.browser_running).toBe(false);
    await fresh.stop();
    await tool.post("/navigate", { url: site.url });
    const { body } = await tool.get("/info");
    expect(body).toMatchObject({ running: true, backend: engine.name, source: "override", headful: false });
    expect(body.product).toMatch(/(Chrome|WebKitGTK)\/\d+/);
    expect(body.pages).toEqual([expect.objectContaining({ url: `${site.url}/`, active: true })]);
  });

  test("captures console, requests with bodies, and WebSocket frames", async () => {
    await tool.post("/navigate", { url: `${site.url}/noise` });
    await tool.post("/wait-for-selector", { selector: "html" });
    const awaited = ["thrown later", "404", ...(engine.lacks("console of workers") ? [] : ["from worker"])];
    await until("everything arrived", async () => {
      const { body } = await tool.get("/console?level=debug");
      const { requests } = (await tool.get("/network?type=fetch")).body as { requests: { state: string }[] };
      const isQuiet = requests.length === 2 && requests.every(({ state }) => state !== "pending");
      return isQuiet && awaited.every((text) => JSON.stringify(body).includes(text));
    });
    const { body: log } = await tool.get("/console");
    const texts = log.messages.map(
      (message: { level: string; text: string }) => `${message.level}: ${message.text}`,
    );
    expect(texts).toContain("info: plain 1 {a: 1} [2]");
    expect(texts).toContain("warning: careful");
    expect(texts).not.toContain("debug: fine");
    expect(
      (await tool.get("/console?level=error")).body.messages.every(
        (m: { level: string }) => m.level === "error",
      ),
    ).toBe(true);
    const { body: network } = await tool.get("/network?url=data.json");
    expect(network.requests).toHaveLength(1);
    expect(network.requests[0]).toMatchObject({
      method: "POST",
      status: 200,
      state: "done",
      post_data: engine.lacks("bodies of requests") ? null : "sent",
      resource_type: "fetch",
    });
    const { body: answered } = await tool.get(`/request?id=${network.requests[0].id}`);
    if (engine.lacks("bodies of fetched answers")) expect(answered.body_missing).toContain("no longer kept");
    else expect(answered).toMatchObject({ status: 200, body: '{"secret":42}', base64: false });
    const { body: documents } = await tool.get("/network?type=document");
    const { body: html } = await tool.get(`/request?id=${documents.requests.at(-1).id}`);
    expect(html.body).toContain("<title>Noise</title>");
    expect((await tool.get("/request?id=r999999")).status).toBe(404);
    const { body: sockets } = await tool.get("/websockets");
    expect(
      sockets.sockets[0].frames.map((f: { direction: string; payload: string }) => [f.direction, f.payload]),
    ).toEqual([
      ["sent", "hi"],
      ["received", "echo hi"],
    ]);
  });

  test("pictures the viewport, the page and an element", async () => {
    await tool.post("/navigate", { url: site.url });
    const size = (body: { data: string }) => {
      const png = Buffer.from(body.data, "base64");
      return [png.readUInt32BE(16), png.readUInt32BE(20)];
    };
    expect(size((await tool.post("/screenshot")).body)).toEqual([1280, 720]);
    const full = (await tool.post("/screenshot", { full_page: true })).body;
    expect(size(full)[1]).toBeGreaterThan(3_000);
    expect(size((await tool.post("/screenshot", { target: "#b" })).body)).toEqual([40, 20]);
    expect((await tool.post("/screenshot", { type: "jpeg", quality: 50 })).body.mime_type).toBe("image/jpeg");
    await tool.post("/resize", { width: 500, height: 400 });
    expect(await tool.evaluate("[innerWidth, innerHeight]")).toEqual([500, 400]);
    expect(size((await tool.post("/screenshot")).body)).toEqual([500, 400]);
    await tool.post("/resize", { width: 1280, height: 720 });
  });

  test("dom pages through HTML", async () => {
    await tool.post("/navigate", { url: site.url });
    expect((await tool.get("/dom?selector=h1")).body).toEqual({
      html: "<h1>Home</h1>",
      matches: 1,
      total_chars: 13,
      next_offset: null,
    });
    const first = (await tool.get("/dom?max_chars=50")).body;
    const rest = (await tool.get(`/dom?offset=${first.next_offset}`)).body;
    expect(first.html + rest.html).toBe(
      (await tool.evaluate("document.documentElement.outerHTML")) as string,
    );
  });

  test("a batch runs its steps in order and stops at an error unless told otherwise", async () => {
    const steps = [
      { op: "navigate", url: site.url },
      { op: "click", target: "#none", timeout_ms: 100 },
      { op: "evaluate", expression: "document.title" },
    ];
    const stopped = (await tool.post("/batch", { steps })).body;
    expect([stopped.completed, stopped.results.length]).toEqual([1, 2]);
    expect(stopped.results[1].error.code).toBe("element_not_found");
    const through = (await tool.post("/batch", { steps, stop_on_error: false })).body;
    expect(through.completed).toBe(2);
    expect(through.results[2].result.value).toBe("Home");
    const wrong = await tool.post("/batch", { steps: [{ op: "fly" }] });
    expect(wrong.status).toBe(400);
    expect(wrong.body.error.message).toContain("steps.0.op");
  });

  test("a batch goes on after a step that hung, and keeps what was done when its time is over", async () => {
    await tool.post("/navigate", { url: site.url });
    const { body } = await tool.post("/batch", {
      stop_on_error: false,
      steps: [
        { op: "evaluate", expression: "for (;;);", timeout_ms: 300 },
        { op: "evaluate", expression: "1 + 1" },
        { op: "console", level: "error" },
      ],
    });
    expect(body.results.map(({ ok }: { ok: boolean }) => ok)).toEqual([false, true, true]);
    expect(body.results[0].error.message).toStartWith("Timeout 300ms exceeded.");
    const late = await tool.post("/batch", {
      timeout_ms: 500,
      stop_on_error: false,
      steps: [
        { op: "evaluate", expression: "1" },
        { op: "wait-for-selector", selector: "#never" },
        { op: "evaluate", expression: "2" },
      ],
    });
    expect(late.body.results.map(({ ok }: { ok: boolean }) => ok)).toEqual([true, false, false]);
    expect(late.body.results[2].error.message).toContain("timeout_ms");
  });

  test("every operation on a page takes its time limit, in a query too", async () => {
    await tool.post("/navigate", { url: site.url });
    for (const path of ["/dom", "/a11y"])
      expect((await tool.get(`${path}?timeout_ms=5000`)).status).toBe(200);
    expect((await tool.get("/dom?timeout_ms=soon")).body.error.message).toContain("timeout_ms");
  });

  test("a target that is no selector, a broken path and a body too large are told apart from absence", async () => {
    await tool.post("/navigate", { url: site.url });
    const wrong = {
      code: "invalid_request",
      message: expect.stringContaining("is not a ref, a CSS selector"),
    };
    expect((await tool.get("/dom?target=%21%21")).body.error).toEqual(wrong);
    expect((await tool.post("/screenshot", { target: "!!" })).body.error).toEqual(wrong);
    expect((await tool.post("/evaluate", { target: "!!", expression: "1" })).body.error).toEqual(wrong);
    const large = await tool.post("/evaluate", { expression: "x".repeat(9_000_000) });
    expect([large.status, large.body.error.code]).toEqual([413, "payload_too_large"]);
  });

  test("says which field is wrong, and what exists", async () => {
    const wrong = await tool.post("/click", { target: "a", button: "up" });
    expect([wrong.status, wrong.body.error.code]).toEqual([400, "invalid_request"]);
    expect(wrong.body.error.message).toContain("button");
    expect((await tool.get("/nowhere")).body.error.message).toContain("/openapi.json");
    expect((await tool.get("/click")).status).toBe(405);
    const notJson = await fetch(`${tool.url}/click`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{",
    });
    expect(notJson.status).toBe(400);
  });

  test("describes every operation as OpenAPI", async () => {
    const { body } = await tool.get("/openapi.json");
    for (const { path, method } of operations)
      expect(body.paths[path][method.toLowerCase()].responses["200"]).toBeDefined();
    expect(body.paths["/evaluate"].post.requestBody.content["application/json"].schema.required).toContain(
      "expression",
    );
  });

  /** fetch() does not let a caller choose Host. */
  function raw(headers: Record<string, string>, method = "GET", path = "/health"): Promise<number> {
    return new Promise((resolve, reject) => {
      const asked = httpRequest(tool.url + path, { method, headers }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      asked.on("error", reject);
      asked.end(method === "POST" ? "{}" : undefined);
    });
  }

  test("serves only its own host names, no web pages, only JSON", async () => {
    const { port } = new URL(tool.url);
    expect(await raw({})).toBe(200);
    expect(await raw({ host: `localhost:${port}` })).toBe(200);
    for (const host of [
      "evil.example",
      `evil.example:${port}`,
      "127.0.0.1",
      `127.0.0.1.evil.example:${port}`,
      `127.0.0.1:${Number(port) + 1}`,
    ])
      expect([host, await raw({ host })]).toEqual([host, 403]);
    for (const origin of [
      "http://evil.example",
      "null",
      `http://127.0.0.1:${port}.evil.example`,
      `https://127.0.0.1:${port}`,
    ])
      expect([origin, await raw({ origin })]).toEqual([origin, 403]);
    expect(await raw({ "sec-fetch-site": "cross-site" })).toBe(403);
    expect(await raw({ "content-type": "text/plain" }, "POST", "/navigate")).toBe(415);
    expect(await raw({}, "POST", "/navigate")).toBe(415);
    const answer = await fetch(`${tool.url}/health`);
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("an empty token is refused at the start instead of letting everyone in", async () => {
    const cli = join(import.meta.dir, "../src/cli.ts");
    const { exitCode, stderr } = Bun.spawnSync([
      process.execPath,
      cli,
      "debug",
      "--port",
      "0",
      "--token",
      "",
    ]);
    expect(exitCode).toBe(2);
    expect(stderr.toString()).toContain("--token must not be empty");
  });

  test("asks for the token when one is set", async () => {
    const guarded = startTool({ engine }, "s3cret");
    expect((await guarded.get("/health")).status).toBe(401);
    expect((await guarded.get("/health", { authorization: "Bearer wrong" })).status).toBe(401);
    expect((await guarded.get("/health", { authorization: "Bearer s3cret" })).status).toBe(200);
    await guarded.stop();
  });
});
