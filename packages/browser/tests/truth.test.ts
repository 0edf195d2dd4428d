import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

/** What the page got, told by the page itself: each event and the id of what it was aimed at. */
const log = `<pre id="log"></pre><script>
for (const name of ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click', 'dblclick'])
  addEventListener(name, (e) => log.append(name + ':' + (e.target.id || e.target.localName) + ' '), true)
</script>`;

const pages = {
  "/aside": `<title>Aside</title><style>button { display: block; width: 120px; height: 40px } #a:hover { margin-left: 400px }</style>
    <button id="a" onclick="document.title = 'A'">A</button><button id="b" onclick="document.title = 'B'">B</button>${log}`,
  "/panel": `<title>Panel</title><style>#p { display: none; height: 60px } body:hover #p { display: block }
    button { display: block; height: 40px }</style><div id="p">panel</div>
    <button id="x" onclick="document.title = 'X'">X</button><button id="y" onclick="document.title = 'Y'">Y</button>${log}`,
  "/gone": `<title>Gone</title><style>.w:hover #top { display: none } button { display: block; width: 200px; height: 60px }</style>
    <div class="w"><button id="top" onclick="document.title = 'TOP'">T</button><button id="low" onclick="document.title = 'LOW'">L</button></div>`,
  "/pressed": `<title>Pressed</title><button id="x" style="position:absolute;left:50px;top:50px" onclick="document.title = 'X'">X</button>
    <div id="under" style="height:400px" onclick="document.title = 'under'"></div>
    <script>x.onmousedown = () => { x.style.left = '400px' }</script>`,
  "/captures": `<title>Captures</title><div id="track" style="width:300px;height:40px" onclick="document.title = 'clicked'">
    <span id="thumb" style="display:inline-block;width:40px;height:40px">o</span></div>
    <script>track.onpointerdown = (e) => track.setPointerCapture(e.pointerId)</script>`,
  "/first": `<title>First</title><script>const heard = []
    addEventListener('mousedown', (e) => { e.stopImmediatePropagation(); heard.push(e.target.id) }, true)</script>
    <button id="b" style="width:100px">B</button><script>
    document.onmousemove = () => { b.style.marginLeft = '300px'; document.onmousemove = null }</script>`,
  "/masked": `<title>Masked</title><input id="short" maxlength="4"><input id="upper" oninput="this.value = this.value.toUpperCase()">
    <input id="fixed" oninput="this.value = 'fixed'"><input id="later" oninput="requestAnimationFrame(() => { this.value = 'later' })">
    <textarea id="lines"></textarea><div id="rich" contenteditable></div>`,
  "/heard": `<title>Heard</title><input id="plain" value="old"><input id="own"><input id="asks" oninput="alert('sure?')">
    <input id="passes" onfocus="next.focus()"><input id="next"><input id="leaves" oninput="location = '/'"><p id="frame"></p><script>const heard = []
    for (const name of ['focus', 'beforeinput', 'input', 'change'])
      addEventListener(name, (e) => heard.push([name, e.target.id, e.isTrusted, e.data ?? ''].join(' ')), true)
    own.onbeforeinput = (e) => { e.preventDefault(); own.value += '<' + e.data + '>' }</script>`,
  "/names": `<title>Names</title><p id="p" class="c">text <b>bold</b></p><script>var v = 'v of the page', t = 't of the page', n = 3</script>`,
  "/strict": (_request: Request) =>
    new Response("<!doctype html><title>Strict</title>", {
      headers: { "content-type": "text/html", "content-security-policy": "script-src 'none'" },
    }),
  "/sandbox": `<title>Sandbox</title><iframe sandbox="allow-scripts" srcdoc="<button id='w' onclick='window.open(&quot;/&quot;)'>Open</button>"></iframe>`,
  "/storm": `<title>Storm</title><button onclick="for (let i = 0; i < 12; i++) alert('again'); alert('last')">Storm</button>`,
  "/picker": `<title>Picker</title><input id="field" type="file" hidden multiple><button onclick="field.click()">Attach</button>`,
  "/raf": `<title>Raf</title><button onclick="requestAnimationFrame(() => { this.textContent = 'drawn' })">Draw</button>`,
  "/quirks": () => new Response(`<p id="p">Here</p>`, { headers: { "content-type": "text/html" } }),
  "/asks": `<title>Asks</title><button id="where" onclick="navigator.geolocation.getCurrentPosition(() => { document.title = 'here' }, () => { document.title = 'refused' })">Where</button>`,
  "/covered": `<title>Covered</title><button id="open">Open</button><div inert><button id="off">Off</button></div>
    <button id="under" style="position:absolute;left:20px;top:200px">Under</button>
    <div style="position:absolute;left:0;top:180px;width:300px;height:80px;background:#fff">Over</div>`,
  "/": `<title>Home</title>`,
};

onEachEngine("what is reported is what happened", (engine) => {
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
  const told = (body: { events?: { text: string }[] }) =>
    (body.events ?? []).map(({ text }) => text).join("\n");

  test("a click whose pointer moves the page lands on its target, or is not reported as done", async () => {
    for (let i = 0; i < 12; i++) {
      for (const [path, target, title] of [
        ["/aside", "#a", "A"],
        ["/panel", "#x", "X"],
      ] as const) {
        await open(path);
        const { status } = await tool.post("/click", { target });
        const got = (await tool.evaluate("log.textContent")) as string;
        const id = target.slice(1);
        expect(got).toEndWith(`pointerdown:${id} mousedown:${id} pointerup:${id} mouseup:${id} click:${id} `);
        expect(got.match(/click:\w+/g)).toEqual([`click:${id}`]);
        expect([path, status, await tool.evaluate("document.title")]).toEqual([path, 200, title]);
      }
    }
  }, 60_000);

  test("a target that hides from the pointer is not clicked, and neither is what takes its place", async () => {
    await open("/gone");
    const { status, body } = await tool.post("/click", { target: "#top", timeout_ms: 1_000 });
    expect([status, body.error.code]).toEqual([409, "element_not_actionable"]);
    expect(await tool.evaluate("document.title")).toBe("Gone");
  });

  test("a press that moves its target away is not a click on what lies below", async () => {
    await open("/pressed");
    const { status } = await tool.post("/click", { target: "#x" });
    expect([status, await tool.evaluate("document.title")]).toEqual([200, "X"]);
  });

  test("a pointer that the page takes hold of still clicks", async () => {
    await open("/captures");
    const { status } = await tool.post("/click", { target: "#thumb" });
    expect([status, await tool.evaluate("document.title")]).toEqual([200, "clicked"]);
  });

  test("a listener that the page has set before cannot see an event that misses", async () => {
    await open("/first");
    expect((await tool.post("/click", { target: "#b" })).status).toBe(200);
    expect(await tool.evaluate("heard")).toEqual(["b"]);
  });

  test("what a field holds is read back", async () => {
    await open("/masked");
    for (const [target, text, value, complaint] of [
      ["#short", "123456", "1234", 'The field holds "1234", not "123456".'],
      ["#upper", "abc", "ABC", 'The field holds "ABC", not "abc".'],
      ["#fixed", "free", "fixed", 'The field holds "fixed", not "free".'],
      ["#later", "now", "later", 'The field holds "later", not "now".'],
      ["#lines", "one\ntwo", "one\ntwo", ""],
      ["#rich", "plain", "plain", ""],
    ] as const) {
      const { body } = await tool.post("/type", { target, text });
      expect([target, body.value, told(body)]).toEqual([target, value, complaint]);
    }
  });

  test("typing brings each key's events once, and the page may take it into its own hands", async () => {
    await open("/heard");
    await tool.post("/type", { target: "#plain", text: "ne" });
    expect((await tool.post("/type", { target: "#own", text: "ok" })).body.value).toBe("<o><k>");
    expect(await tool.evaluate("heard")).toEqual([
      "focus plain true ",
      "beforeinput plain false n",
      "input plain true n",
      "beforeinput plain false e",
      "input plain true e",
      "change plain true ",
      "focus own true ",
      "beforeinput own false o",
      "beforeinput own false k",
    ]);
    const asked = await tool.post("/type", { target: "#asks", text: "yes" });
    expect([asked.status, asked.body.value]).toEqual([200, "yes"]);
    expect(told(asked.body)).toContain("sure?");
    // The focus that the page passes on takes the text with it, as it would take a person's.
    await tool.post("/type", { target: "#passes", text: "on" });
    expect(await tool.evaluate("[passes.value, next.value]")).toEqual(["", "on"]);
    const left = await tool.post("/type", { target: "#leaves", text: "bye" });
    expect([left.status, left.body.title]).toEqual([200, "Home"]);
    // WebKit's own process ends when a frame goes away under a command in it; the tool says that the page crashed.
    if (engine.name === "webkit") return;
    await open("/heard");
    await tool.evaluate(
      `frame.innerHTML = '<iframe srcdoc="<input id=inner oninput=parent.frame.remove()>"></iframe>'`,
    );
    const gone = await tool.post("/type", { target: "#inner", text: "gone" });
    expect([gone.status, gone.body.error]).toEqual([200, undefined]);
    expect(await tool.evaluate("document.querySelector('iframe')")).toBe(null);
  });

  test("evaluate runs among the page's names, and no others", async () => {
    await open("/names");
    expect(await tool.evaluate("[v, t, n]")).toEqual(["v of the page", "t of the page", 3]);
    expect(await tool.evaluate("const a = v; a + t")).toBe("v of the paget of the page");
    expect(await tool.evaluate("typeof charsMax + typeof given")).toBe("undefinedundefined");
    const again = await tool.post("/evaluate", { expression: "const a = 1; a" });
    expect(again.body.value).toBe(1);
    const onElement = await tool.post("/evaluate", { expression: "(e) => v + e.id", target: "#p" });
    expect(onElement.body.value).toBe("v of the pagep");
  });

  test("evaluate shows elements, cycles and what JSON leaves out", async () => {
    await open("/names");
    expect(await tool.evaluate("p")).toBe('<p id="p" class="c">…</p>');
    expect(await tool.evaluate("document.querySelectorAll('b')")).toEqual(["<b>bold</b>"]);
    expect(
      await tool.evaluate("const o = { a: 1n, w: window, m: new Map([['k', 1]]) }; o.self = o; o"),
    ).toEqual({
      a: "1",
      w: "[window]",
      m: { k: 1 },
      self: "[circular]",
    });
    expect(await tool.evaluate("const s = {}; [s, s]")).toEqual([{}, {}]);
    const failed = await tool.post("/evaluate", { expression: "JSON.parse('{')" });
    expect(failed.body.error.message).toContain("JSON");
    expect(failed.body.error.message).not.toContain("async () =>");
  });

  test("evaluate says that a promise never settled, and works where the page forbids eval", async () => {
    await open("/strict");
    expect(await tool.evaluate("const a = 2; a + 1")).toBe(3);
    const { status, body } = await tool.post("/evaluate", {
      expression: "new Promise(() => {})",
      timeout_ms: 300,
    });
    expect(status).toBe(504);
    expect(body.error.message).toContain("a promise that has not settled");
  });

  test("an action returns after the frame that follows it", async () => {
    await open("/raf");
    const { body } = await tool.post("/click", { target: "button" });
    expect(body.changes).toContain('"drawn"');
  });

  test("repeated events are merged and counted", async () => {
    await open("/storm");
    const { body } = await tool.post("/click", { target: "button" });
    expect(body.events).toEqual([
      { kind: "dialog", text: 'alert dialog "again" was accepted', count: 12 },
      { kind: "dialog", text: 'alert dialog "last" was accepted' },
    ]);
  });

  test("an opened file chooser and a blocked popup are events", async () => {
    await open("/picker");
    const { body } = await tool.post("/click", { target: "text=Attach" });
    expect(body.events).toEqual([
      { kind: "file_chooser", text: expect.stringContaining("one or more files") },
    ]);
    await open("/sandbox");
    let blocked = "";
    const clicked = await tool.post("/click", { target: "#w" });
    blocked += told(clicked.body);
    await until("the popup is reported as blocked", async () => {
      blocked += told((await tool.post("/evaluate", { expression: "1" })).body);
      return /popup was blocked/.test(blocked);
    });
  });

  test.skipIf(engine.lacks("refused permissions"))(
    "a permission that was refused is an event, and can be granted",
    async () => {
      const local = site.url.replace("127.0.0.1", "localhost");
      await tool.post("/navigate", { url: `${local}/asks` });
      // What is granted to pages leaves open what they may still ask for.
      const granted = await tool.post("/resize", { permissions: ["notifications"] });
      expect(told(granted.body) + told((await tool.post("/evaluate", { expression: "1" })).body)).toBe("");
      let events = told((await tool.post("/click", { target: "#where" })).body);
      await until("the refusal is told", async () => {
        events += told((await tool.post("/evaluate", { expression: "1" })).body);
        return events.includes("asked for geolocation and was refused");
      });
      const geolocation = { latitude: 52.5, longitude: 13.4 };
      await tool.post("/resize", { geolocation });
      expect((await tool.session.browser()).granted).toEqual(["notifications", "geolocation"]);
      await tool.post("/click", { target: "#where" });
      await until(
        "the page knows where it is",
        async () => (await tool.evaluate("document.title")) === "here",
      );
    },
  );

  test("an element of a page without a doctype is hovered", async () => {
    await open("/quirks");
    expect((await tool.post("/click", { action: "hover", target: "#p" })).status).toBe(200);
  });

  test("a browser that died between calls is an event of the next one", async () => {
    await open("/");
    const browser = await tool.session.browser();
    browser.connection.root.send("Browser.crash").catch(() => {});
    await until("the browser is gone", () => browser.connection.closedReason !== null);
    const { body } = await open("/");
    expect(body.title).toBe("Home");
    expect(told(body)).toContain("The browser ended between calls");
  });
});
