/** What only the WebKit engine does, and how it does what the page code here does not ask for yet. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CdpSession } from "../../src/cdp/connection.ts";
import { EngineLibrary } from "../../src/engines/foreign/index.ts";
import { hasWebkit, webkit, webkitLibrary } from "../engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "../helpers.ts";
import { McpClient } from "../mcp-client.ts";

const html = (text: string) =>
  new Response(`<!doctype html>${text}`, { headers: { "content-type": "text/html" } });

const toGrant = (name: string) => ({ permission: { name }, setting: "granted" }) as const;

/** A document that never ends, and does not hurry. */
function endless(): ReadableStream {
  return new ReadableStream({
    async pull(stream) {
      stream.enqueue("<!doctype html><title>Stream</title><p>more");
      await Bun.sleep(50);
    },
  });
}

describe.skipIf(!hasWebkit)("the WebKit engine (npm run webkit -- build)", () => {
  let tool: Tool;
  let site: Site;
  let temp: string;
  beforeAll(() => {
    temp = mkdtempSync(join(tmpdir(), "webkit-test-"));
    site = startSite({
      "/": "<title>Home</title><h1>Home</h1>",
      "/drag": `<title>Drag</title><style>div { position: absolute; width: 100px; height: 50px; top: 20px }</style>
        <div id="a" draggable="true" style="left: 20px; background: red">A</div>
        <div id="b" style="left: 300px; background: silver">B</div><script>
        a.ondragstart = (e) => e.dataTransfer.setData('text/plain', 'carried')
        b.ondragover = (e) => e.preventDefault()
        b.ondrop = (e) => { e.preventDefault(); document.title = 'dropped ' + e.dataTransfer.getData('text/plain') }
        </script>`,
      "/files": `<title>Files</title><input type="file" multiple id="own" style="display: none">
        <button style="position: absolute; left: 0; top: 100px; width: 100px; height: 50px">Choose</button><script>
        const show = async (input) => { document.title = (await Promise.all([...input.files].map((f) => f.text()))).join() }
        own.onchange = () => show(own)
        onclick = (e) => { if (e.target === own) document.title = 'the page saw the click' }
        document.querySelector('button').onclick = () => {
          const input = document.createElement('input'); input.type = 'file'; input.onchange = () => show(input); input.click()
        }</script>`,
      "/where": `<title>Where</title><script>
        const ask = () => navigator.geolocation.getCurrentPosition(
          ({ coords }) => { document.title = coords.latitude + ',' + coords.longitude },
          (error) => { document.title = 'refused ' + error.code })</script>`,
      "/dark": "<style>@media (prefers-color-scheme: dark) { body { background: black } }</style><p>x</p>",
      "/socket": `<title>Socket</title><script>
        const socket = new WebSocket('ws://169.254.169.254/latest/meta-data')
        socket.onerror = () => { document.title = 'failed' }</script>`,
      "/stays": `<title>Stays</title><button>x</button>
        <script>onbeforeunload = () => { for (;;); }; onpagehide = () => { for (;;); }</script>`,
      "/stream": () =>
        new Response(endless(), {
          headers: { "content-type": "text/html" },
        }),
      "/alone": () =>
        new Response(
          `<!doctype html><title>Alone</title><a href="tel:1">Call</a><button onclick="fetch('http://169.254.169.254/', { mode: 'no-cors' })
            .catch(() => { document.title = 'refused, alone ' + crossOriginIsolated })">Fetch</button>`,
          {
            headers: {
              "content-type": "text/html",
              "cross-origin-opener-policy": "same-origin",
              "cross-origin-embedder-policy": "require-corp",
            },
          },
        ),
      "/window": `<title>Window</title><button onclick="window.open('').fetch('http://169.254.169.254/')
        .catch(() => { document.title = 'refused in the window' })">Open</button>`,
      "/workers": `<title>Workers</title><script>document.title = [typeof SharedWorker, typeof navigator.serviceWorker].join()</script>`,
      "/service": `<title>Service</title><script>
        navigator.serviceWorker.onmessage = (e) => { document.title = e.data }
        navigator.serviceWorker.register('/service.js').then(async ({ installing, active }) => (active ?? installing).postMessage('try'))</script>`,
      "/service.js": () =>
        new Response(
          `onmessage = ({ source }) => fetch('http://169.254.169.254/', { mode: 'no-cors' }).then(
            () => source.postMessage('reached'), () => source.postMessage('refused by the worker'))`,
          { headers: { "content-type": "text/javascript" } },
        ),
      "/agent": ({ headers }) => html(`<title>${headers.get("user-agent")}</title>`),
    });
    tool = startTool({ engine: webkit });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    rmSync(temp, { recursive: true, force: true });
  });

  const open = (path: string, more = {}) =>
    tool.post("/navigate", { url: site.url.replace("127.0.0.1", "localhost") + path, ...more });
  const title = () => tool.evaluate("document.title");
  const titled = (wanted: string) => until(`the title is ${wanted}`, async () => (await title()) === wanted);
  async function session(): Promise<CdpSession> {
    return (await (await tool.session.browser()).page()).session;
  }
  const root = async () => (await tool.session.browser()).connection.root;

  async function mouse(type: "mouseMoved" | "mousePressed" | "mouseReleased", x: number, y: number) {
    const button = type === "mouseMoved" ? "none" : "left";
    await (await session()).send("Input.dispatchMouseEvent", { type, x, y, button, clickCount: 1 });
  }

  test("says what it is and lists its methods", () => {
    const { info } = new EngineLibrary(webkitLibrary);
    expect(info).toMatchObject({ name: "webkit", version: expect.stringMatching(/^2\.\d+\.\d+$/) });
    expect(info.methods?.has("Page.navigate")).toBe(true);
    expect(info.methods?.has("Input.dispatchTouchEvent")).toBe(false);
  });

  test("what it cannot do is refused by name", async () => {
    const page = await session();
    const refusal = async (work: Promise<unknown>) =>
      work.then(
        () => "done",
        (error: { code?: string; message: string }) => `${error.code}: ${error.message}`,
      );
    const metrics = { width: 400, height: 800, deviceScaleFactor: 3, mobile: true };
    expect(await refusal(page.send("Emulation.setDeviceMetricsOverride", metrics))).toMatch(
      /^not_supported: .*device scale factor/,
    );
    const touch = { type: "touchStart" as const, touchPoints: [{ x: 1, y: 1 }] };
    expect(await refusal(page.send("Input.dispatchTouchEvent", touch))).toMatch(
      /^not_supported: .*webkit does not know Input\.dispatchTouchEvent/,
    );
    expect(await refusal(page.send("Page.captureScreenshot", { format: "webp" }))).toMatch(
      /^not_supported: .*png or jpeg/,
    );
    const data = { items: [], files: ["/etc/hostname"], dragOperationsMask: 1 };
    expect(await refusal(page.send("Input.dispatchDragEvent", { type: "drop", x: 1, y: 1, data }))).toMatch(
      /^not_supported: .*nothing from outside/,
    );
    expect(await refusal((await root()).send("Browser.setPermission", toGrant("midi")))).toMatch(
      /^not_supported: .*midi/,
    );
  });

  test("what a page lets be dragged is dragged and dropped", async () => {
    await open("/drag");
    await mouse("mouseMoved", 60, 40);
    await mouse("mousePressed", 60, 40);
    for (const x of [62, 70, 90, 200, 340, 350]) await mouse("mouseMoved", x, 40);
    await mouse("mouseReleased", 350, 40);
    expect(await title()).toBe("dropped carried");
  });

  test("files reach a hidden field and a chooser that the page opens", async () => {
    const files = ["one", "two"].map((name) => join(temp, name));
    for (const path of files) writeFileSync(path, `content of ${path.slice(-3)}`);
    await open("/files");
    const page = await session();
    const { result } = await page.send("Runtime.evaluate", { expression: "own" });
    await page.send("DOM.setFileInputFiles", { objectId: result.objectId!, files });
    await titled("content of one,content of two");
    await page.send("Page.setInterceptFileChooserDialog", { enabled: true });
    const opened = new Promise<{ mode: string; backendNodeId?: number }>((resolve) =>
      page.on("Page.fileChooserOpened", resolve),
    );
    await mouse("mousePressed", 50, 120);
    await mouse("mouseReleased", 50, 120);
    const { mode, backendNodeId } = await opened;
    expect(mode).toBe("selectSingle");
    await page.send("DOM.setFileInputFiles", { backendNodeId, files: files.slice(1) });
    await titled("content of two");
  });

  test("the location is told to pages that may know it", async () => {
    await open("/where");
    await tool.evaluate("ask()");
    await titled("refused 1");
    await (await root()).send("Browser.setPermission", toGrant("geolocation"));
    await (await session()).send("Emulation.setGeolocationOverride", {
      latitude: 52.5,
      longitude: 13.25,
      accuracy: 5,
    });
    await open("/where");
    await tool.evaluate("ask()");
    await titled("52.5,13.25");
    await (await root()).send("Browser.resetPermissions");
  });

  test("colour scheme, user agent, cookies and PDF", async () => {
    const page = await session();
    const features = [{ name: "prefers-color-scheme", value: "dark" }];
    await page.send("Emulation.setEmulatedMedia", { features });
    await open("/dark");
    const background = "getComputedStyle(document.body).backgroundColor";
    await until("it is dark", async () => (await tool.evaluate(background)) === "rgb(0, 0, 0)");
    await page.send("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value: "" }],
    });
    await page.send("Emulation.setUserAgentOverride", { userAgent: "Somebody Else/1.0" });
    await open("/agent");
    expect(await title()).toBe("Somebody Else/1.0");
    await page.send("Emulation.setUserAgentOverride", { userAgent: "" });
    const cookie = { name: "who", value: "me", url: site.url, httpOnly: true };
    await (await root()).send("Storage.setCookies", { cookies: [cookie] });
    expect((await page.send("Network.getCookies", { urls: [site.url] })).cookies).toMatchObject([
      { name: "who", value: "me", domain: "127.0.0.1", httpOnly: true, expires: -1 },
    ]);
    await (await root()).send("Storage.clearCookies");
    expect((await (await root()).send("Storage.getCookies")).cookies).toEqual([]);
    const { data } = await page.send("Page.printToPDF", { landscape: true, pageRanges: "1-2" });
    expect(Buffer.from(data, "base64").subarray(0, 5).toString()).toBe("%PDF-");
  });

  test("WebSockets are held to the same addresses as everything else", async () => {
    const { body } = await open("/socket");
    let events = JSON.stringify(body.events ?? []);
    await titled("failed");
    events += JSON.stringify((await tool.post("/evaluate", { expression: "1" })).body.events ?? []);
    expect(events).toContain("ws://169.254.169.254/latest/meta-data was blocked");
  });

  test("a page that moves into a process of its own is held to the same rules there", async () => {
    await open("/");
    await open("/alone");
    const fetched = await tool.post("/click", { target: "button" });
    await titled("refused, alone true");
    const called = await tool.post("/click", { target: "a" });
    const last = await tool.post("/evaluate", { expression: "1" });
    const events = JSON.stringify([fetched.body.events, called.body.events, last.body.events]);
    expect(events).toContain("A request to http://169.254.169.254/ was blocked");
    expect(events).toContain("Another application was asked to open tel:1");
  });

  test("what a page does at once in a window that it opens is held to the same rules", async () => {
    await open("/window");
    const opener = (await tool.get("/pages")).body.pages[0].id;
    const { body } = await tool.post("/click", { target: "button" });
    await tool.post("/pages", { page: opener });
    await titled("refused in the window");
    const last = await tool.post("/evaluate", { expression: "1" });
    expect(JSON.stringify([body.events, last.body.events])).toContain("http://169.254.169.254/ was blocked");
  });

  test("workers whose requests nobody sees are off where no proxy checks their addresses", async () => {
    await open("/workers");
    expect(await title()).toBe("function,object");
    const unchecked = startTool({ engine: webkit, urlPolicy: { allowFile: false, allowLinkLocal: true } });
    try {
      const { body } = await unchecked.post("/navigate", { url: `${site.url}/workers` });
      expect(body.title).toBe("undefined,undefined");
    } finally {
      await unchecked.stop();
    }
  });

  test("a service worker does not reach blocked addresses", async () => {
    const home = site.url.replace("127.0.0.1", "localhost");
    await tool.post("/navigate", { url: `${home}/service` });
    let events = "";
    await until("it has tried", async () => {
      const { body } = await tool.post("/evaluate", { expression: "document.title" });
      events += JSON.stringify(body.events ?? []);
      return body.value !== "Service";
    });
    expect(await title()).toBe("refused by the worker");
    expect(events).toContain("A connection was blocked: 169.254.169.254");
  });

  test.each(["/stays", "/stream"])("%s is left, though it does not end by itself", async (path) => {
    expect((await open(path, { wait_until: "commit" })).status).toBe(200);
    if (path === "/stays") await tool.post("/click", { target: "button" });
    expect((await open("/")).body.title).toBe("Home");
  });

  test("what is missing to start it is named", async () => {
    const client = new McpClient([], { ...webkit.env, PATH: temp });
    await client.initialize();
    const { isError, text } = await client.call("browser_navigate", { url: site.url });
    expect([isError, text]).toEqual([
      true,
      expect.stringContaining("Xvfb could not be started; is it installed?"),
    ]);
    await client.end();
  });

  test("an engine that dies says why, and leaves nothing", async () => {
    const other = startTool({ engine: webkit });
    try {
      const browser = await other.session.browser();
      const { downloadsDir } = browser.options;
      const profile = join(downloadsDir, "..");
      expect(readdirSync(profile)).toContain("gate");
      browser.connection.root.send("Browser.crash").catch(() => {});
      await until("it is gone", () => browser.connection.closedReason !== null);
      expect(browser.connection.closedReason).toMatch(/^webkit: WebKit's process was killed by signal 6/);
      expect(existsSync(profile)).toBe(false);
      expect((await other.post("/navigate", { url: site.url })).body.title).toBe("Home");
    } finally {
      await other.stop();
    }
  });
});
