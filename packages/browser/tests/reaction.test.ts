/** What an action tells of a page that reacts a moment later, and what it does not wait for. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const rows = (count: number) =>
  Array.from({ length: count }, (_, i) => `<li>Row ${i} <button>Open ${i}</button></li>`).join("");

const pages = {
  "/late": `<title>Late</title><button id="go" onclick="setTimeout(() => { out.textContent = 'It is done' }, 350)">Go</button><p id="out"></p>
    <button id="twice" onclick="setTimeout(() => setTimeout(() => { out.textContent = 'Twice' }, 150), 150)">Twice</button>
    <button id="fade" onclick="this.animate([{ opacity: 1 }, { opacity: 0.5 }], 250).onfinish = () => { out.textContent = 'Faded' }">Fade</button>
    <button id="lag" onclick="const moves = this.animate([{ opacity: 1 }, { opacity: 0.5 }], 400); moves.startTime = document.timeline.currentTime - 100; moves.onfinish = () => { out.textContent = 'In an old frame' }">Lag</button>
    <button id="never">Never</button>
    <button id="starved" onclick="setTimeout(() => { const end = performance.now() + 500; while (performance.now() < end); }, 100); setTimeout(() => { out.textContent = 'At last' }, 300)">Starved</button>`,
  "/form": `<title>Form</title><form onsubmit="event.preventDefault(); setTimeout(() => { out.textContent = 'Sent' }, 400)">
    <input id="q" oninput="const end = performance.now() + 300; while (performance.now() < end);"></form><p id="out"></p>`,
  "/search": `<title>Search</title><label>Search <input id="q"></label><ul id="hits"></ul><script>let timer;
    q.oninput = () => { clearTimeout(timer); timer = setTimeout(() => { hits.innerHTML = '<li>Hit for ' + q.value + '</li>' }, 250) }</script>`,
  "/asks": `<title>Asks</title><label>Find <input id="q"></label><p id="out"></p><script>let timer;
    q.oninput = () => { clearTimeout(timer); timer = setTimeout(async () => { out.textContent = await (await fetch('/data')).text() }, 200) }</script>`,
  "/data": async () => {
    await Bun.sleep(150);
    return new Response("the answer");
  },
  "/clock": `<title>Clock</title><p id="clock"></p><button id="none">None</button><script>let n = 0;
    setInterval(() => { clock.textContent = ++n }, 30)</script>`,
  "/busy": `<title>Busy</title><button id="none">None</button><script>const again = () => setTimeout(again, 20); again()</script>`,
  "/feed": `<title>Feed</title><p id="out">Loading…</p><script>addEventListener('load', async () => {
    const first = await (await fetch('/data')).text(); out.textContent = first + await (await fetch('/data')).text() })</script>`,
  "/hangs": `<title>Hangs</title><p>Here</p><script>addEventListener('load', () => fetch('/never'))</script>`,
  "/never": () => new Promise<Response>(() => {}),
  "/login": `<title>Login</title><label>User <input id="user" onkeydown="if (event.key === 'Enter') setTimeout(() => { location.href = '/home' }, 700)"></label>`,
  "/home": `<title>Home</title><h1>Welcome back</h1><button>Sign out</button>`,
  "/large": `<title>Large</title><p id="state">waiting</p><ul>${rows(600)}</ul>`,
  "/frame": `<title>Frame</title><h1>Outside</h1><iframe src="/inside" title="Part"></iframe>`,
  "/inside": `<p id="inner">before</p>`,
  "/panel": `<title>Panel</title><div id="panel"><div><input aria-label="Filter"></div><ul><li>One</li></ul></div>
    <button id="hide" onclick="panel.hidden = true">Hide</button>
    <div id="lone"><button id="add" onclick="lone.append('a text beside it')">Add</button></div>`,
  "/shadow": `<title>Shadow</title><x-box></x-box><script>customElements.define('x-box', class extends HTMLElement {
    constructor() { super(); this.attachShadow({ mode: 'open' }).innerHTML = '<button>Inner</button><p></p>';
      this.shadowRoot.querySelector('button').onclick = () => setTimeout(() => { this.shadowRoot.querySelector('p').textContent = 'Shadow done' }, 200) } })</script>`,
  "/redraw": `<title>Redraw</title><table id="t"></table><script>const state = ['new', 'new', 'new'];
    const draw = () => { t.innerHTML = state.map((s, i) => '<tr><td>Order ' + i + '<td>' + s + '<td><button onclick="state[' + i + ']=\\'sent\\'; draw()">Send</button><td><button>Edit ' + i + '</button>').join('') }; draw()</script>`,
};

onEachEngine("reactions", (engine) => {
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

  const open = async (path: string) => (await tool.post("/navigate", { url: site.url + path })).body;
  const told = async (path: string, body: object): Promise<string> => {
    const answer = await tool.post(path, body);
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
    return answer.body.changes.replace(/ \[ref=\w+\]/g, "");
  };
  const since = async () => (await tool.get("/a11y?since=true")).body;

  test("what a timer or an animation brings is told by the action that began it", async () => {
    await open("/late");
    expect(await told("/click", { target: "#go" })).toBe("~ paragraph: It is done");
    await open("/late");
    expect(await told("/click", { target: "#twice" })).toBe("~ paragraph: Twice");
    await open("/late");
    expect(await told("/click", { target: "#fade" })).toBe("~ paragraph: Faded");
    await open("/late");
    expect(await told("/click", { target: "#lag" })).toBe("~ paragraph: In an old frame");
    await open("/late");
    expect(await told("/click", { target: "#starved" })).toBe("~ paragraph: At last");
  });

  test("a search that waits for the end of typing is waited for, and so is what it asks the server", async () => {
    await open("/search");
    expect(await told("/type", { target: "#q", text: "ab" })).toContain("listitem: Hit for ab");
    await open("/asks");
    expect(await told("/type", { target: "#q", text: "ab" })).toContain("paragraph: the answer");
  });

  test("what Enter brings is told, however long the typing before it took", async () => {
    await open("/form");
    expect(await told("/type", { target: "#q", text: "ab", submit: true })).toContain("paragraph: Sent");
  });

  test("where nothing is to come nothing is waited for, and a busy page costs half a second at most", async () => {
    /** The quickest of so many: a busy machine takes its own time. */
    const leastMs = async (times: number, act: () => Promise<unknown>) => {
      const tookMs: number[] = [];
      for (let i = 0; i < times; i++) {
        const fromMs = performance.now();
        await act();
        tookMs.push(performance.now() - fromMs);
      }
      return Math.min(...tookMs);
    };
    await open("/late");
    const nothing = async () => expect(await told("/click", { target: "#never" })).toBe("");
    expect(await leastMs(4, nothing)).toBeLessThan(400);
    for (const path of ["/clock", "/busy"]) {
      await open(path);
      expect(await leastMs(2, () => told("/click", { target: "#none" }))).toBeLessThan(1_500);
    }
  });

  test("a page that fetches while it loads is told with what it fetched; one that never ends is not waited for", async () => {
    await open("/feed");
    expect(await tool.snapshot()).toContain("the answerthe answer");
    expect((await open("/hangs")).title).toBe("Hangs");
  });

  test("since a new document all is new, in place of nothing", async () => {
    await open("/login");
    await tool.snapshot();
    await tool.post("/type", { target: "#user", text: "ann", submit: true });
    const { body } = await tool.get("/a11y?since=true&wait_text=Welcome%20back");
    expect(body.snapshot).toContain('heading "Welcome back"');
    expect(body.changes).toBeUndefined();
    expect((await since()).changes).toBe("");
  });

  test("since a snapshot of a page that is larger than it, and in frames", async () => {
    await open("/large");
    await tool.snapshot();
    await tool.evaluate("document.getElementById('state').textContent = 'loaded late'");
    expect((await since()).changes).toContain("loaded late");
    await open("/frame");
    await tool.snapshot();
    await tool.evaluate(
      "document.querySelector('iframe').contentDocument.getElementById('inner').textContent = 'after'",
    );
    expect((await since()).changes).toContain("after");
    await tool.evaluate("document.querySelector('iframe').contentDocument.body.append('more')");
    expect(await told("/click", { target: "h1" })).toContain("more");
  });

  test("what stands in nameless containers, or beside what was alone, is told too", async () => {
    await open("/panel");
    const gone = await told("/click", { target: "#hide" });
    expect(gone).toContain('- textbox "Filter"');
    expect(gone).toContain("- list");
    expect(await told("/click", { target: "#add" })).toContain("a text beside it");
  });

  test("what happens later inside of a shadow root is waited for", async () => {
    await open("/shadow");
    expect(await told("/click", { target: "text=Inner" })).toContain("Shadow done");
  });

  test("rows that are drawn anew keep their refs, and only the one that changed is told", async () => {
    await open("/redraw");
    const edit = await tool.ref('button "Edit 2"');
    const changes = await told("/click", { target: "tr:nth-child(2) button" });
    expect(changes).toBe('+ cell "sent"\n- cell "new"');
    expect(await tool.ref('button "Edit 2"')).toBe(edit);
    expect((await tool.post("/click", { target: edit })).status).toBe(200);
  });
});
