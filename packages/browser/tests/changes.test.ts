import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const rows = (count: number) =>
  Array.from(
    { length: count },
    (_, i) => `<li id="r${i}">Row number ${i} <button>Open ${i}</button></li>`,
  ).join("");

const pages = {
  "/form": `<title>Form</title><h1>Form</h1><label>Name <input id="who"></label><label><input type="checkbox" id="c"> News</label>
    <button id="save" onclick="err.textContent = who.value ? '' : 'Name is missing'">Save</button><p id="err" role="alert"></p>
    <button id="ask" onclick="dlg.showModal()">Ask</button><dialog id="dlg" aria-label="Sure?"><button onclick="dlg.close()">Yes</button></dialog>
    <button id="menu" aria-expanded="false" onclick="this.setAttribute('aria-expanded', 'true'); document.body.classList.add('m')">Menu</button>
    <style>#list { display: none } .m #list { display: block }</style><ul id="list"><li>First</li><li>Second</li></ul>
    <button id="none">Nothing</button>`,
  "/toast": `<title>Toast</title><button id="b" onclick="const t = document.createElement('div'); t.role = 'status'; t.textContent = 'Saved it';
    document.body.append(t); setTimeout(() => t.remove(), 700)">Save</button>
    <button id="late" onclick="setTimeout(() => { live.textContent = 'Later done'; setTimeout(() => { live.textContent = '' }, 200) }, 600)">Late</button>
    <div id="live" aria-live="polite"></div><button id="other">Other</button>`,
  "/fetch": `<title>Fetch</title><button onclick="fetch('/data').then((r) => r.text()).then((t) => { out.textContent = t })">Load</button><p id="out"></p>
    <button id="never" onclick="fetch('/never')">Never</button>`,
  "/data": async () => {
    await Bun.sleep(120);
    return new Response("the answer");
  },
  "/never": () => new Promise<Response>(() => {}),
  "/sort": `<title>Sort</title><ul id="l"><li>One</li><li>Two</li><li>Three</li></ul><button onclick="l.prepend(l.lastElementChild)">Turn</button>`,
  "/again": `<title>Again</title><div id="app"></div><script>let n = 0; const draw = () => {
    app.innerHTML = '<p>Static text</p><button onclick="n++; draw()">Count ' + n + '</button>' }; draw()</script>`,
  "/large": `<title>Large</title><button id="top" onclick="r1500.firstChild.data = 'Changed row '; document.body.append(Object.assign(document.createElement('p'), { textContent: 'At the end' }))">Change</button>
    <ul>${rows(2_000)}</ul>`,
  "/endless": `<title>Endless</title><ul id="feed"></ul><button onclick="more()">More</button><script>let n = 0;
    function more() { for (let i = 0; i < 40; i++) { n++; feed.insertAdjacentHTML('beforeend', '<li>Post number ' + n + ' <button>Like ' + n + '</button></li>') } } more()</script>`,
  "/month": `<title>Month</title><button id="open" onclick="cal.hidden = !cal.hidden">Choose</button><div id="cal" hidden role="dialog" aria-label="May">
    ${Array.from({ length: 31 }, (_, i) => `<button>May ${i + 1}</button>`).join("")}</div>`,
  "/stars": `<title>Stars</title><div id="row"><i tabindex="0" class="star" onclick="this.classList.toggle('lit')">a</i><i class="star" tabindex="0">b</i></div>`,
  "/flood": `<title>Flood</title><button onclick="for (let i = 0; i < 3000; i++) document.body.append(Object.assign(document.createElement('p'), { textContent: 'Line number ' + i }))">Flood</button>`,
};

onEachEngine("what changed", (engine) => {
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
  const changes = async (path: string, body: object): Promise<string> => {
    const answer = await tool.post(path, body);
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
    return answer.body.changes.replace(/ \[ref=\w+\]/g, "");
  };
  const momentary = (body: { events?: { kind: string; text: string }[] }) =>
    (body.events ?? []).filter(({ kind }) => kind === "momentary").map(({ text }) => text);

  test("errors, values, dialogs, menus and states are told, and nothing else", async () => {
    await open("/form");
    expect(await changes("/click", { target: "#save" })).toBe("~ alert: Name is missing");
    expect(await changes("/type", { target: "#who", text: "Ann" })).toBe('~ textbox "Name": Ann');
    expect(await changes("/click", { target: "#save" })).toBe("~ alert");
    expect(await changes("/click", { target: "#c" })).toBe('~ checkbox "News" [checked]');
    expect(await changes("/click", { target: "#ask" })).toBe('+ dialog "Sure?":\n+   button "Yes" [active]');
    expect(await changes("/press-key", { key: "Escape" })).toBe('- dialog "Sure?"');
    expect(await changes("/click", { target: "#menu" })).toBe(
      '~ button "Menu" [expanded]\n+ list:\n+   listitem: First\n+   listitem: Second',
    );
    expect(await changes("/click", { target: "#none" })).toBe("");
  });

  test("refs of what is new can be acted on", async () => {
    await open("/form");
    const { body } = await tool.post("/click", { target: "#ask" });
    const ref = /button "Yes".*\[ref=(\w+)\]/.exec(body.changes)![1];
    expect((await tool.post("/click", { target: ref })).status).toBe(200);
    expect(await tool.evaluate("dlg.open")).toBe(false);
  });

  test("a toast is told while it is there, and after it has gone", async () => {
    await open("/toast");
    expect(await changes("/click", { target: "#b" })).toBe("+ status: Saved it");
    await tool.post("/wait", { gone: "Saved it" });
    const late = await tool.post("/click", { target: "#late" });
    expect(late.body.changes).not.toContain("Later");
    await tool.post("/wait", { ms: 1_000 });
    const next = await tool.post("/click", { target: "#other" });
    expect(momentary(next.body)).toEqual(['Shown for a moment: "Later done"']);
    expect(momentary((await tool.post("/click", { target: "#other" })).body)).toEqual([]);
  });

  test("a toast of 0.7 s is told by the action that brought it and waits for an answer", async () => {
    await open("/toast");
    await tool.evaluate("b.addEventListener('click', () => fetch('/data'))");
    const { body } = await tool.post("/click", { target: "#b" });
    expect(body.changes).toContain("status");
  });

  test("an answer of the server that the action asked for is waited for, though not for ever", async () => {
    await open("/fetch");
    expect(await changes("/click", { target: "text=Load" })).toBe("~ paragraph: the answer");
    expect(await changes("/click", { target: "#never" })).toBe("");
  });

  test("a new order is told, and a part that is drawn again is not told as gone", async () => {
    await open("/sort");
    expect(await changes("/click", { target: "text=Turn" })).toBe(
      "~ list:\n~   listitem: Three\n~   listitem: One\n~   listitem: Two",
    );
    await open("/again");
    const drawn = await changes("/click", { target: "button" });
    expect(drawn).toContain('+ button "Count 1"');
    expect(drawn).not.toContain("- paragraph");
  });

  test("in a large page changes are found wherever they are, and the result stays small", async () => {
    await open("/large");
    const { body } = await tool.post("/click", { target: "#top" });
    expect(body.changes).toContain("Changed row");
    expect(body.changes).toContain("At the end");
    expect(body.changes.length).toBeLessThan(3_000);
    await open("/flood");
    const flood = await tool.post("/click", { target: "button" });
    expect(flood.body.changes).toContain("Line number 1");
    expect([flood.body.changes.length < 3_500, flood.body.changes_cut]).toEqual([true, true]);
  });

  test("of what an endless list has loaded, the first, the last, and how to see the rest are told", async () => {
    await open("/endless");
    await tool.snapshot();
    const { changes } = (await tool.post("/click", { target: "text=More" })).body;
    expect(changes).toMatch(/Post number 41[\s\S]*35 more, see[\s\S]*Post number 80/);
    expect([changes.includes("Post number 50"), changes.length < 700]).toEqual([false, true]);
    const [, target, offset] = /"target":"(\w+)","offset":(\d+)/.exec(changes)!;
    expect(await tool.snapshot(`?target=${target}&offset=${offset}`)).toMatch(
      /Post number 45[\s\S]*Post number 79/,
    );
  });

  test("a month that is shown again is not told again", async () => {
    await open("/month");
    expect(await changes("/click", { target: "#open" })).toContain("May 31");
    await changes("/click", { target: "#open" });
    expect(await changes("/click", { target: "#open" })).toBe(
      '+ dialog "May":\n+   … 31 lines as told before, with the same refs',
    );
  });

  test("what changes by its class alone is told", async () => {
    await open("/stars");
    expect(await changes("/click", { target: ".star" })).toBe(
      '~ <i class="star lit">a</i>: only its class, which was "star"',
    );
  });

  test("a snapshot of only what changed, or of only what holds a text", async () => {
    await open("/form");
    await tool.snapshot();
    await tool.evaluate("err.textContent = 'Set by script'");
    const { body } = await tool.get("/a11y?since=true");
    expect([body.changes.replace(/ \[ref=\w+\]/, ""), body.snapshot]).toEqual(["~ alert: Set by script", ""]);
    expect((await tool.get("/a11y?since=true")).body.changes).toBe("");
    await open("/large");
    const found = await tool.snapshot("?find=ROW%20NUMBER%201234%20");
    expect(found).toContain("Row number 1234");
    expect(found).toContain('button "Open 1234"');
    expect(found.split("\n").length).toBeLessThan(6);
    expect(await tool.snapshot("?find=nowhere-to-be-seen")).toBe("");
    expect(await tool.snapshot("?find=row%20number")).toMatch(/about \d+ more hits, find a longer text/);
  });
});
