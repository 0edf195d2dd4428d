/** Things that pages do and that a tool easily gets wrong: each was found on a page of somebody else's. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";
import { McpClient } from "./mcp-client.ts";

const pages = {
  "/ask": `<title>Ask</title><button id="b" onclick="out.textContent = confirm('Sure?') ? prompt('Why?', 'none') : 'no'">Delete</button><p id="out"></p>`,
  "/in": () =>
    new Response("<title>In</title>in", {
      headers: { "content-type": "text/html", "set-cookie": "session=1" },
    }),
  "/whoami": (request: Request) =>
    new Response(request.headers.get("cookie") ?? "nobody", { headers: { "content-type": "text/html" } }),
  "/closes": `<title>Closes</title><button onclick="window.close()">Close</button>`,
  "/code": `<title>Code</title><div id="editor" tabindex="-1"><textarea id="t" style="width:20px"></textarea><pre id="code"></pre></div><script>
    // Like a code editor: what is typed gets closing brackets and indentation, what is pasted does not.
    t.addEventListener('paste', (e) => { e.preventDefault(); code.textContent += e.clipboardData.getData('text/plain') })
    t.addEventListener('input', () => { code.textContent += t.value.replaceAll('{', '{}').replaceAll('\\n', '\\n    '); t.value = '' })</script>`,
  "/keys": `<title>Keys</title><input id="k" aria-label="Keys"><p id="log"></p><script>
    for (const type of ['keydown', 'keypress', 'input', 'keyup'])
      k.addEventListener(type, (e) => { log.textContent += type + (e.key ?? '') + ' ' })</script>`,
  "/table": `<title>Table</title><table><tr><td>Ann</td><td>Berlin</td><td><button>Edit Ann</button></td></tr><tr><td>Bob</td><td>Paris</td><td><button>Edit Bob</button></td></tr></table>`,
  "/framed": `<title>Framed</title><section aria-label="Around"><iframe title="Empty" src="/date"></iframe></section><iframe title="Full" src="/table"></iframe>`,
  "/drawn": `<title>Drawn</title><body style="margin:0"><svg width="200" height="100"><circle cx="60" cy="50" r="10" fill="red"/></svg><p>Colour <span style="display:inline-block;width:9px;height:9px;background:green"></span> of it</p>`,
  "/invalid": `<title>Invalid</title><form><label>Reference <input name="ref" required pattern="[A-Z]{3}" title="Three capitals"></label><button>Send</button></form>`,
  "/date": `<title>Date</title><label>Day <input type="date" id="d"></label>`,
  "/file": () =>
    new Response("a,b\n1,2\n", { headers: { "content-disposition": 'attachment; filename="report.csv"' } }),
  "/download": `<title>Download</title><a href="/file">Get</a>`,
  "/shadow": `<title>Shadow</title><x-list></x-list><script>customElements.define('x-list', class extends HTMLElement {
    constructor() { super(); this.attachShadow({ mode: 'open' }).innerHTML = '<ul><li><button onclick="this.textContent=\\'hit\\'">One</button></li></ul>' } })</script>`,
  "/texts": `<title>Texts</title><h2>Settings</h2><p>All settings</p><button onclick="out.textContent = 'pressed'">Settings</button><p id="out"></p>
    <ul><li id="first">Item <b>one</b></li><li id="second">Item <b>two</b></li></ul>`,
  "/readonly": `<title>Readonly</title><input id="r" readonly value="fixed" aria-label="Fixed">`,
  "/password": `<title>Password</title><label>Password <input id="p" type="password"></label>`,
  "/print": `<title>Print</title><button onclick="print()">Print</button>`,
  "/where": `<title>Where</title><button onclick="navigator.geolocation.getCurrentPosition((p) => { out.textContent = 'there' }, (e) => { out.textContent = 'refused' })">Where</button><p id="out"></p>`,
  "/form": `<title>Form</title><label>Name <input id="a"></label><label>City <input id="b"></label><label>Plan <select id="c"><option>Free<option>Paid</select></label>`,
  "/picker": `<title>Picker</title><button id="open" onclick="cal.hidden = false">Open</button><button id="close" onclick="cal.hidden = true">Shut</button>
    <div id="cal" hidden><p>January 2026</p><p>${Array.from({ length: 31 }, (_, i) => `<button aria-label="${i + 1} January">${i + 1}</button>`).join("")}</p></div>`,
};

onEachEngine("faults that were found", (engine) => {
  let tool: Tool;
  let site: Site;
  const downloads = mkdtempSync(join(tmpdir(), "faults-"));
  beforeAll(() => {
    tool = startTool({ engine, downloadsDir: downloads });
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    rmSync(downloads, { recursive: true, force: true });
  });

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });
  const eventsOf = (body: { events?: { text: string }[] }) =>
    (body.events ?? []).map(({ text }) => text).join("\n");

  test("a prompt after a confirm gets its text, and the event says which", async () => {
    await open("/ask");
    const { body } = await tool.post("/click", {
      target: "#b",
      dialog: { accept: true, prompt_text: "because" },
    });
    expect(await tool.evaluate("out.textContent")).toBe("because");
    expect(eventsOf(body)).toContain('prompt dialog "Why?" was accepted with "because"');
  });

  test("the session survives its last tab, closed by the tool or by the page", async () => {
    await open("/in");
    await tool.post("/pages", { close: "page", page: (await tool.get("/pages")).body.pages[0].id });
    await open("/whoami");
    expect(await tool.snapshot()).toContain("session=1");
    if (engine.name === "webkit") return;
    const { body } = await tool.get("/pages");
    await tool.evaluate(`void window.open(${JSON.stringify(`${site.url}/closes`)})`);
    await until("the popup", async () => (await tool.get("/pages")).body.pages.length === 2);
    await tool.post("/pages", { close: "page", page: body.pages[0].id });
    await tool.post("/click", { target: "text=Close" });
    await until(
      "the blank page",
      async () => (await tool.get("/pages")).body.pages[0]?.url === "about:blank",
    );
    await open("/whoami");
    expect(await tool.snapshot()).toContain("session=1");
  });

  test("a code editor gets the text as it is, without a false alarm", async () => {
    await open("/code");
    const text = "function f() {\n  return 42\n}";
    const { body } = await tool.post("/type", { target: "#editor", text });
    expect(await tool.evaluate("code.textContent")).toBe(text);
    expect(body.events).toBeUndefined();
  });

  test("typing fires the events of each key, and none into an empty field before it", async () => {
    await open("/keys");
    await tool.post("/type", { target: "#k", text: "ab" });
    expect(await tool.evaluate("log.textContent")).toBe(
      "keydowna keypressa input keyupa keydownb keypressb input keyupb ",
    );
    expect(await tool.evaluate("k.value")).toBe("ab");
    await open("/keys");
    await tool.post("/type", { target: "#k", text: `${"long ".repeat(100)}end` });
    expect(await tool.evaluate("[k.value.length, log.textContent.match(/keyup/g).length]")).toEqual([
      503, 201,
    ]);
    await open("/keys");
    await tool.post("/type", { target: "#k", text: "ab", slowly: true });
    expect(await tool.evaluate("log.textContent")).not.toContain("Delete");
  });

  test("a search shows the whole row of a hit", async () => {
    await open("/table");
    const found = await tool.snapshot("?find=paris");
    expect(found).toContain('button "Edit Bob"');
    expect(found).not.toContain("Ann");
  });

  test("a search looks into frames, and leaves out those without a hit", async () => {
    await open("/framed");
    const found = await tool.snapshot("?find=paris");
    expect(found).toContain('button "Edit Bob"');
    expect(found).not.toMatch(/Ann|"Empty"|Around/);
  });

  test("with places, what tells by shape or colour alone is shown too, and is no news afterwards", async () => {
    await open("/drawn");
    expect(await tool.snapshot()).not.toMatch(/circle|rgb/);
    const drawn = await tool.snapshot("?boxes=true");
    expect(drawn).toMatch(/\[box=50,40,20,20\]:\n\s+- \/hint: circle fill=red/);
    expect(drawn).toContain("span background=rgb(0, 128, 0)");
    expect((await tool.get("/a11y?since=true")).body.changes).toBe("");
  });

  test("a wheel that turns too far is refused", async () => {
    const { status, body } = await tool.post("/press-key", { key: "Wheel+180744" });
    expect([status, body.error.message]).toEqual([400, expect.stringContaining("too far")]);
  });

  test("a wrong field is told by its label, ref and title", async () => {
    await open("/invalid");
    const { body } = await tool.post("/click", { target: "text=Send" });
    expect(eventsOf(body)).toMatch(
      /A field is not valid: textbox "Reference" \[ref=\w+\]: .*\(Three capitals\)/,
    );
  });

  test("a wrong date is refused without a word in the page's console", async () => {
    await open("/date");
    const { status, body } = await tool.post("/type", { target: "#d", text: "31.02.2026" });
    expect([status, body.error.message]).toEqual([409, expect.stringContaining("2026-01-31")]);
    expect((await tool.post("/type", { target: "#d", text: "2026-02-30" })).status).toBe(409);
    expect((await tool.post("/type", { target: "#d", text: "2026-02-28" })).status).toBe(200);
    expect((await tool.get("/console")).body.messages).toEqual([]);
  });

  test("downloads keep their names, the second one with a number", async () => {
    await open("/download");
    for (const count of [1, 2]) {
      await tool.post("/click", { target: "text=Get" });
      await until(
        "the download",
        () => readdirSync(downloads).filter((name) => name.endsWith(".csv")).length === count,
      );
    }
    expect(["report.csv", "report (1).csv"].every((name) => existsSync(join(downloads, name)))).toBe(true);
  });

  test("selectors cross the boundary of a shadow root, with >> too, and take :has-text", async () => {
    await open("/shadow");
    for (const target of ['button:has-text("one")', "x-list button", "x-list li button", "x-list >> button"])
      expect([target, (await tool.post("/click", { target })).status]).toEqual([target, 200]);
    await open("/texts");
    const { body } = await tool.post("/click", { target: 'li:has-text("item two")', action: "hover" });
    expect(body.matches).toBe(1);
  });

  test("of several that hold a text, the one to be acted on is taken", async () => {
    await open("/texts");
    await tool.post("/click", { target: "text=Settings" });
    expect(await tool.evaluate("out.textContent")).toBe("pressed");
  });

  test("a read-only field is told at once", async () => {
    await open("/readonly");
    const fromMs = performance.now();
    const { body } = await tool.post("/type", { target: "#r", text: "x" });
    expect(body.error.message).toContain("it is read-only");
    // At once, and not at its deadline.
    expect(performance.now() - fromMs).toBeLessThan(5_000);
  });

  test("a password is in no result", async () => {
    await open("/password");
    const { body } = await tool.post("/type", { target: "#p", text: "hunter2" });
    expect(JSON.stringify(body)).not.toContain("hunter2");
    expect(body.value).toBe("••••••");
    expect(await tool.snapshot()).toContain("••••••");
    expect(await tool.evaluate("p.value")).toBe("hunter2");
  });

  test("a page that prints itself is told", async () => {
    if (engine.name === "webkit") return;
    await open("/print");
    const { body } = await tool.post("/click", { target: "text=Print" });
    expect(eventsOf(body)).toContain("asked to be printed");
  });

  test("a refused permission is told each time it is asked for, a permission that is taken back is not", async () => {
    if (engine.lacks("refused permissions")) return;
    await open("/where");
    const ask = async () => eventsOf((await tool.post("/click", { target: "text=Where" })).body);
    expect(await ask()).toContain("asked for geolocation and was refused");
    await tool.post("/resize", {
      permissions: ["geolocation"],
      geolocation: { latitude: 1, longitude: 2 },
    });
    expect(await ask()).not.toContain("refused");
    const { body } = await tool.post("/resize", { permissions: [] });
    expect(eventsOf(body)).toBe("");
    expect(eventsOf((await tool.get("/a11y")).body)).toBe("");
    expect(await ask()).toContain("asked for geolocation and was refused");
  });

  test("several fields are filled in one call", async () => {
    await open("/form");
    const fields = [
      { target: "#a", text: "Ann" },
      { target: "#b", text: "Berlin" },
      { target: "#c", text: "Paid" },
    ];
    const { status, body } = await tool.post("/type", { fields });
    expect(status).toBe(200);
    for (const { text } of fields) expect(body.changes).toContain(text);
  });

  test("what was told of a calendar is not told again when it closes", async () => {
    await open("/picker");
    await tool.post("/click", { target: "#open" });
    const { body } = await tool.post("/click", { target: "#close" });
    expect(eventsOf(body)).toBe("");
  });
});

test("a search without a hit says so", async () => {
  const client = new McpClient();
  await client.initialize();
  try {
    const { text } = await client.call("browser_snapshot", { find: "nowhere-to-be-seen" });
    expect(text).toContain('Nothing on the page holds "nowhere-to-be-seen".');
  } finally {
    await client.end();
  }
});
