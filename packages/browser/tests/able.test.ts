import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";
import { McpClient } from "./mcp-client.ts";

const pages = {
  "/": `<title>Home</title><h1>Home</h1>`,
  "/canvas": `<title>Canvas</title><canvas id="c" width="200" height="100" style="border:5px solid"></canvas><p id="log"></p><script>
    for (const name of ['click', 'dblclick', 'mousedown', 'mouseup', 'mousemove', 'contextmenu'])
      c.addEventListener(name, (e) => { if (name !== 'mousemove' || e.buttons) log.append(name + ' ' + (e.clientX - c.offsetLeft - 5) + ',' + (e.clientY - c.offsetTop - 5) + ' ' + e.detail + '; ') })
  </script>`,
  "/text": `<title>Text</title><p id="p">Some words to select</p><p id="q">Another paragraph</p><input id="f" value="abc">
    <div id="box" style="height:100px;overflow:auto"><div style="height:1000px">tall</div></div><div style="height:3000px"></div><b id="end">End</b>`,
  "/keys": `<title>Keys</title><input id="k"><p id="log"></p><script>addEventListener('keydown', (e) => log.append(e.key + ' '))</script>`,
  "/late": `<title>Late</title><p id="wait">Please wait</p><script>setTimeout(() => { wait.remove(); document.body.append('It is here') }, 300)</script>`,
  "/tabs": `<title>Tabs</title><button onclick="for (let i = 0; i < 3; i++) window.open('/?' + i)">Open</button>
    <button id="many" onclick="for (let i = 0; i < 30; i++) window.open('about:blank')">Many</button>`,
  "/net": (request: Request) =>
    new Response(
      `<!doctype html><title>Net</title><script>fetch('/data?x=1'); const ws = new WebSocket('ws://127.0.0.1:${new URL(request.url).port}/ws');
      ws.onerror = () => { document.title = 'closed' }</script>`,
      { headers: { "content-type": "text/html" } },
    ),
  "/data": () => Response.json({ ok: true }),
  "/lists": `<title>Lists</title><select id="one"><option>a<option>b</select><select id="many" multiple><option>x<option>y<option>z</select>`,
  "/dialog": `<title>Dialog</title><button onclick="document.title = String(prompt('Name?'))">Ask</button>`,
  "/dark": `<title>Dark</title><style>@media (prefers-color-scheme: dark) { body { background: #000 } }</style>`,
  "/noise": `<title>Noise</title><canvas id="n" width="1600" height="1600"></canvas><script>const x = n.getContext('2d'), d = x.createImageData(1600, 1600)
    for (let i = 0; i < d.data.length; i += 65536) crypto.getRandomValues(d.data.subarray(i, i + 65536)); for (let i = 3; i < d.data.length; i += 4) d.data[i] = 255; x.putImageData(d, 0, 0)</script>`,
};

onEachEngine("everything a person can do on a page", (engine) => {
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

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });
  const ok = async (path: string, body: object) => {
    const answer = await tool.post(path, body);
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
    return answer.body;
  };

  test("clicks at a position of an element and of the page", async () => {
    await open("/canvas");
    await ok("/click", { target: "#c", position: { x: 25, y: 15 } });
    expect(await tool.evaluate("log.textContent")).toContain("click 20,10 1;");
    await ok("/click", { target: "#c", position: { x: 25, y: 15 }, button: "right" });
    expect(await tool.evaluate("log.textContent")).toContain("contextmenu 20,10");
    const box = (await tool.evaluate(
      "[c.getBoundingClientRect().x, c.getBoundingClientRect().y]",
    )) as number[];
    const { events } = await ok("/click", { position: { x: box[0]! + 35, y: box[1]! + 45 }, click_count: 2 });
    expect(await tool.evaluate("log.textContent")).toContain("dblclick 30,40 2;");
    expect(events[0].text).toContain("<canvas");
    const outside = await tool.post("/click", { target: "#c", position: { x: 500, y: 1 } });
    expect(outside.body.error.message).toContain("it is 210 wide and 110 high");
    expect((await tool.post("/click", { position: { x: -1, y: 1 } })).status).toBe(400);
    expect((await tool.post("/click", {})).body.error.message).toStartWith("target: is required");
  });

  test("presses, moves and releases one after the other", async () => {
    await open("/canvas");
    await ok("/click", { target: "#c", position: { x: 15, y: 15 }, action: "press" });
    await ok("/click", { action: "hover", target: "#c", position: { x: 55, y: 35 } });
    await ok("/click", { target: "#c", position: { x: 95, y: 55 }, action: "release" });
    const got = (await tool.evaluate("log.textContent")) as string;
    expect(got).toStartWith("mousedown 10,10 1; mousemove 50,30");
    expect(got).toContain("mouseup 90,50");
    const again = await tool.post("/click", { action: "release" });
    expect(again.body.error.message).toContain("No button is down");
  });

  test("selects text by clicks and by a drag", async () => {
    await open("/text");
    const selected = () => tool.evaluate("getSelection().toString().trim()");
    await ok("/click", { target: "#q", position: { x: 10, y: 5 }, click_count: 2 });
    expect(await selected()).toBe("Another");
    await ok("/click", { target: "#p", click_count: 3 });
    expect(await selected()).toBe("Some words to select");
    // A press on what is selected would drag it.
    await tool.evaluate("getSelection().empty()");
    const width = await tool.evaluate(
      "(() => { const r = new Range(); r.selectNodeContents(q); return r.getBoundingClientRect().width })()",
    );
    await ok("/click", {
      target: "#q",
      position: { x: 0, y: 8 },
      drag_to: { target: "#q", x: width as number, y: 8 },
    });
    expect(await selected()).toBe("Another paragraph");
    expect((await tool.post("/click", { target: "#p", click_count: 4 })).status).toBe(400);
  });

  test("types at the caret, appends, and says when nothing has the focus", async () => {
    await open("/text");
    const nowhere = await tool.post("/type", { text: "x" });
    expect(nowhere.body.error.message).toContain("Nothing on the page has the focus");
    await ok("/type", { target: "#f", text: "def", append: true });
    expect(await tool.evaluate("f.value")).toBe("abcdef");
    await ok("/press-key", { key: "Home" });
    expect((await ok("/type", { text: "0" })).value).toBe("0abcdef");
    expect((await tool.post("/type", { target: "#f" })).body.error.message).toStartWith("text: is required");
  });

  test("presses keys one after the other, of other keyboards, and repeated", async () => {
    await open("/keys");
    await ok("/press-key", { key: "a あ Shift+b ArrowLeft*3 Space", target: "#k" });
    expect(await tool.evaluate("[log.textContent, k.value]")).toEqual([
      "a あ Shift B ArrowLeft ArrowLeft ArrowLeft   ",
      " aあB",
    ]);
    await ok("/press-key", { key: "Control+a Delete" });
    expect(await tool.evaluate("k.value")).toBe("");
    expect((await tool.post("/press-key", { key: "a*999" })).body.error.message).toContain("200");
    expect((await tool.post("/press-key", { key: "hello" })).body.error.message).toContain("use type");
  });

  test("turns the wheel over the page and over a part of it", async () => {
    await open("/text");
    await ok("/press-key", { key: "Wheel+400", target: "#box" });
    expect(await tool.evaluate("[box.scrollTop, scrollY]")).toEqual([400, 0]);
    await ok("/press-key", { key: "Wheel-150", target: "#box" });
    expect(await tool.evaluate("box.scrollTop")).toBe(250);
    await ok("/click", { action: "hover", position: { x: 900, y: 30 } });
    await ok("/press-key", { key: "Wheel+300" });
    expect(await tool.evaluate("scrollY")).toBe(300);
    await ok("/click", { action: "hover", target: "#end" });
    expect(await tool.evaluate("end.getBoundingClientRect().bottom <= innerHeight")).toBe(true);
  });

  test("waits for a text, an element, their end, and a time", async () => {
    await open("/late");
    expect(
      (await tool.get("/a11y?wait_gone=Please%20wait&wait_text=It%20is%20here")).body.snapshot,
    ).toContain("It is here");
    await open("/late");
    await ok("/wait", { gone: "#wait" });
    const started = performance.now();
    await ok("/wait", { ms: 120 });
    expect(performance.now() - started).toBeGreaterThanOrEqual(115);
    const never = await tool.post("/wait", { text: "never", ms: 150 });
    expect([never.status, never.body.error.message]).toEqual([504, expect.stringContaining("Timeout 150ms")]);
    expect((await tool.post("/wait", {})).status).toBe(400);
  });

  test("chooses options, one and several", async () => {
    await open("/lists");
    await ok("/type", { target: "#one", text: "b" });
    expect((await ok("/type", { target: "#many", text: "x\nz" })).value).toBe("x\nz");
    expect(await tool.evaluate("[one.value, ...[...many.selectedOptions].map((o) => o.value)]")).toEqual([
      "b",
      "x",
      "z",
    ]);
    expect((await tool.post("/type", { target: "#many", text: "q" })).body.error.message).toContain(
      'no option "q"',
    );
  });

  test("closes thirty popups in one call", async () => {
    await open("/tabs");
    await ok("/click", { target: "#many", timeout_ms: 60_000 });
    await until("all are open", async () => (await tool.get("/pages")).body.pages.length === 31, 60_000);
    const opener = (await tool.get("/pages")).body.pages[0].id;
    await ok("/pages", { page: opener });
    const { pages: left } = await ok("/pages", { close: "others", timeout_ms: 60_000 });
    expect(left).toHaveLength(1);
    expect((await open("/")).body.title).toBe("Home");
  }, 120_000);

  test("keeps cookies and storage, and prints", async () => {
    await open("/");
    await ok("/cookies", { cookies: [{ name: "who", value: "me", url: site.url, http_only: true }] });
    expect((await tool.get(`/cookies?url=${encodeURIComponent(site.url)}`)).body.cookies).toMatchObject([
      { name: "who", value: "me", domain: "127.0.0.1", http_only: true },
    ]);
    expect((await tool.delete("/cookies")).body.cleared).toBe(true);
    expect((await tool.get("/cookies")).body.cookies).toEqual([]);
    const bad = await tool.post("/cookies", { cookies: [{ name: "a", value: "b" }] });
    expect(bad.body.error.message).toContain("cookies.0.url");
    expect(await ok("/storage", { local: { a: "1", b: "2" }, session: { s: "3" } })).toMatchObject({
      local: { a: "1", b: "2" },
      session: { s: "3" },
    });
    expect((await ok("/storage", { local: { a: null } })).local).toEqual({ b: "2" });
    expect((await tool.get("/storage")).body.session).toEqual({ s: "3" });
    expect((await tool.delete("/storage")).body).toMatchObject({ local: {}, session: {} });
  });

  test("shows dark pages, and a device's pixels as the page's", async () => {
    await open("/dark");
    await ok("/resize", { color_scheme: "dark" });
    expect(await tool.evaluate("getComputedStyle(document.body).backgroundColor")).toBe("rgb(0, 0, 0)");
    const shape = { color_scheme: "light", device: "iphone" };
    if (engine.lacks("touch and pixel ratios")) {
      const { body } = await tool.post("/resize", shape);
      expect(body.error).toMatchObject({ code: "not_supported", message: expect.stringContaining("webkit") });
      expect(await tool.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]")).toEqual(
        [1280, true],
      );
    } else {
      await ok("/resize", shape);
      const { width, height } = await ok("/screenshot", {});
      expect([width, height]).toEqual([980, 2125]);
    }
    await ok("/resize", { device: "desktop" });
    expect((await tool.post("/resize", {})).body.error.message).toContain("width: is required");
    expect((await tool.post("/resize", { width: 100 })).body.error.message).toContain("height");
    expect((await tool.post("/resize", { permissions: ["nuclear"] })).status).toBe(400);
  });
});

onEachEngine("the same through the twelve tools", (engine) => {
  let client: McpClient;
  let site: Site;
  beforeAll(async () => {
    site = startSite(pages);
    client = new McpClient([], engine.env);
    await client.initialize();
  });
  afterAll(async () => {
    await client.end();
    await site.stop();
  });
  const open = (path: string) => client.call("browser_navigate", { url: site.url + path });

  test("switches between tabs and closes them", async () => {
    await open("/tabs");
    const opened = await client.call("browser_click", { target: "text=Open" });
    expect(opened.text).toContain("### Open tabs\n- 0: ");
    expect(opened.text).toContain("- 3: (current)");
    expect((await client.call("browser_snapshot", { page: 1 })).text).toContain("- 1: (current)");
    expect((await client.call("browser_snapshot", { page: 9 })).text).toContain("There is no page 9");
    const one = await client.call("browser_snapshot", { page: 0, close: "others" });
    expect([one.text.includes("Open tabs"), one.text.includes("- Page Title: Tabs")]).toEqual([false, true]);
  });

  test("adds the logs of requests and WebSockets", async () => {
    await open("/net");
    const { text } = await client.call("browser_snapshot", {
      include: ["network", "websockets"],
      waitFor: { ms: 100 },
    });
    expect(text).toMatch(/### Network\n(.*\n)*r\d+ GET \S+\/data\?x=1 200 fetch/);
    expect(text).toMatch(/### WebSockets\nw\d+ ws:\S+\/ws/);
  });

  test("tells what changed in place of the page, and the page only when it is news", async () => {
    await open("/keys");
    const typed = await client.call("browser_type", { target: "#k", text: "x", slowly: true });
    expect(typed.text).toMatch(/^### Changes\n~ textbox \[ref=\w+\]: x\n~ paragraph \[ref=\w+\]: x$/);
    const nothing = await client.call("browser_press_key", { key: "Shift" });
    expect(nothing.text).toContain("### Changes\n");
    const hovered = await client.call("browser_click", { target: "#k", action: "hover" });
    expect(hovered.text).toBe("### Result\nDone; nothing changed on the page.");
    expect((await client.call("browser_snapshot", { since: true })).text).toContain(
      "### Changes\nNothing changed on the page.",
    );
  });

  test("answers dialogs, drags, and finds", async () => {
    await open("/dialog");
    const asked = await client.call("browser_click", {
      target: "button",
      dialog: { accept: true, promptText: "Eve" },
    });
    expect(asked.text).toContain("- Page Title: Eve");
    await open("/canvas");
    const dragged = await client.call("browser_click", {
      target: "#c",
      position: { x: 10, y: 10 },
      dragTo: { target: "#c", x: 100, y: 50 },
    });
    expect(dragged.text).toContain("mouseup 95,45");
    expect((await client.call("browser_snapshot", { find: "mouseup" })).text).toContain("paragraph");
  });

  test("pictures stay under a megabyte", async () => {
    await client.call("browser_resize", { width: 1600, height: 1600 });
    await open("/noise");
    const { content } = await client.call("browser_screenshot", {});
    const picture = content[1] as unknown as { mimeType: string; data: string };
    expect(picture.mimeType).toBe("image/jpeg");
    expect(picture.data.length * 0.75).toBeLessThanOrEqual(1_000_000);
  });

  test("files are refused without a folder for them", async () => {
    await open("/");
    const { text, isError } = await client.call("browser_type", { target: "h1", files: ["x"] });
    expect([isError, text.includes("--uploads <dir>")]).toEqual([true, true]);
  });
});
