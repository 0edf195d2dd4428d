import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const form = `<title>Form</title>
<form action="/sent">
  <label>Name <input name="name"></label>
  <label>Mail <input name="mail" type="email" placeholder="you@example.com"></label>
  <label>Notes <textarea name="notes"></textarea></label>
  <label><input type="checkbox" name="news"> Newsletter</label>
  <label>Size <select name="size"><option>Small</option><option>Large</option></select></label>
  <label>Day <input type="date" name="day"></label>
  <div id="editor" contenteditable="true" aria-label="Editor">old</div>
  <input name="locked" readonly value="fixed"><button type="button" disabled id="off">Off</button>
  <button id="send">Send</button>
</form>`;

const late = `<title>Late</title><script>
setTimeout(() => { document.body.innerHTML = '<button onclick="document.title=\\'Clicked\\'">Arrived</button>' }, 300)
</script>`;

const moving = `<title>Moving</title><style>
@keyframes go { from { left: 0 } to { left: 400px } }
#m { position: absolute; top: 40px; width: 60px; animation: go 600ms linear forwards }
</style><button id="m" onclick="document.title='Hit'">Catch</button>`;

const jumping = `<title>Jumping</title><button id="j" style="position:absolute;top:10px;left:10px">Jump</button>
<script>let n = 0; j.onclick = () => document.title = 'Hit';
document.addEventListener('mousemove', () => { if (n++ === 0) j.style.left = '300px' }, true)</script>`;

const covered = `<title>Covered</title><button id="b" onclick="document.title='Hit'">Below</button>
<div id="veil" class="overlay" style="position:fixed;inset:0;background:#0008">Please wait</div>`;

const clearing = `${covered}<script>setTimeout(() => veil.remove(), 300)</script>`;

const far = `<title>Far</title><div style="height:5000px"></div><button onclick="document.title='Hit'">Bottom</button>`;

const pulsing = `<title>Pulsing</title><style>@keyframes p { 50% { opacity: .5 } } body { animation: p 1s infinite }</style>
<button id="p" onclick="document.title='Hit'">Pulse</button>`;

const rolling = `<title>Rolling</title><style>@keyframes r { to { transform: rotate(1turn) } } #r { animation: r 2s linear infinite }</style>
<button id="r" style="margin:50px" onclick="document.title='Hit'">Roll</button>`;

const inner = `<title>Inner</title><header style="position:fixed;top:0;left:0;right:0;height:60px;background:#fff">Bar</header>
<div style="height:100px;overflow:auto;margin-top:100px">${Array.from({ length: 20 }, (_, i) => `<p><button id="b${i}" onclick="document.title='Hit ${i}'">B</button></p>`).join("")}</div>
<div style="height:3000px"></div><button id="low" onclick="document.title='Low'">Low</button>`;

const values = `<title>Values</title><input id="color" type="color" value="#112233"><input id="range" type="range" max="10" value="3">
<input id="number" type="number"><input id="when" type="datetime-local"><input id="file" type="file">`;

const styledBox = `<title>Box</title><style>input{opacity:0;position:absolute}span{display:inline-block;width:20px;height:20px}</style>
<label><input type="checkbox" id="c"><span>x</span></label>`;

const contents = `<title>Contents</title><style>[onclick] { display: contents }</style><div style="height:3000px"></div>
<button id="text" onclick="document.title=this.id">Text only</button>
<div id="child" onclick="document.title=this.id"><i hidden>x</i><p>Box</p></div>
<div id="nested" onclick="document.title=this.id"><div style="display:contents"><b>Deep</b></div></div>`;

const keys = `<title>Keys</title><input id="k" value="hello world"><pre id="log"></pre><script>
k.addEventListener('keydown', e => log.textContent += [e.ctrlKey&&'C',e.shiftKey&&'S',e.key,e.code].filter(Boolean).join('-')+' ')</script>`;

onEachEngine("actions in a real browser", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite({
      "/form": form,
      "/sent": (request) =>
        new Response(`<title>Sent</title>${new URL(request.url).search}`, {
          headers: { "content-type": "text/html" },
        }),
      "/late": late,
      "/moving": moving,
      "/jumping": jumping,
      "/covered": covered,
      "/clearing": clearing,
      "/far": far,
      "/inner": inner,
      "/pulsing": pulsing,
      "/rolling": rolling,
      "/values": values,
      "/box": styledBox,
      "/contents": contents,
      "/editor": `<title>Editor</title><div id="rich" contenteditable><p>old</p></div><textarea id="plain"></textarea>`,
      "/keys": keys,
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });

  test("a form is filled and sent, by ref, selector, text and role", async () => {
    expect((await open("/form")).body).toMatchObject({ title: "Form", status: 200, still_loading: false });
    const nameRef = await tool.ref('textbox "Name"');
    expect((await tool.post("/type", { target: nameRef, text: "Zoë 🙂" })).status).toBe(200);
    await tool.post("/type", { target: 'role=textbox[name="Mail"]', text: "a@b.example", slowly: true });
    await tool.post("/type", { target: "textarea", text: "line one\nline two" });
    await tool.post("/click", { target: "text=Newsletter" });
    await tool.post("/type", { target: "select[name=size]", text: "Large" });
    await tool.post("/type", { target: "[name=day]", text: "2026-03-04" });
    await tool.post("/type", { target: "#editor", text: "new text" });
    expect(await tool.evaluate("editor.textContent")).toBe("new text");
    const sent = await tool.post("/click", { target: "#send" });
    expect(sent.body).toMatchObject({ title: "Sent", navigated: true });
    const query = new URL(sent.body.url).searchParams;
    expect(Object.fromEntries(query)).toMatchObject({
      name: "Zoë 🙂",
      mail: "a@b.example",
      notes: "line one\r\nline two",
      news: "on",
      size: "Large",
      day: "2026-03-04",
    });
  });

  test("typing with submit sends the form and waits for the next document", async () => {
    await open("/form");
    const { body } = await tool.post("/type", { target: "[name=name]", text: "Ann", submit: true });
    expect(body).toMatchObject({ title: "Sent", navigated: true });
    expect((await tool.post("/back")).body.title).toBe("Form");
    expect((await tool.post("/forward")).body.title).toBe("Sent");
  });

  test("a ref of an earlier document is refused, not mistaken for a new element", async () => {
    await open("/form");
    const ref = await tool.ref('textbox "Name"');
    await open("/far");
    await tool.snapshot();
    const { status, body } = await tool.post("/click", { target: ref });
    expect(status).toBe(404);
    expect(body.error.code).toBe("stale_ref");
    expect(body.error.message).toBe(
      `Ref ${ref} not found in the current page snapshot. Try capturing new snapshot.`,
    );
  });

  test("what cannot be typed into or clicked says why", async () => {
    await open("/form");
    const short = { timeout_ms: 300 };
    const locked = await tool.post("/type", { target: "[name=locked]", text: "x", ...short });
    expect(locked.body.error).toMatchObject({ code: "element_not_actionable" });
    expect(locked.body.error.message).toContain("read-only");
    expect((await tool.post("/click", { target: "#off", ...short })).body.error.message).toContain(
      "disabled",
    );
    expect((await tool.post("/type", { target: "[name=news]", text: "x" })).body.error.message).toContain(
      "click it instead",
    );
    expect((await tool.post("/type", { target: "[name=size]", text: "Huge" })).body.error.message).toContain(
      "Small, Large",
    );
    const missing = await tool.post("/click", { target: "#nothing", ...short });
    expect(missing.status).toBe(404);
    expect(missing.body.error.message).toContain('"#nothing" does not match any elements');
    const words = await tool.post("/click", { target: "Send", ...short });
    expect(words.body.error.message).toContain("text=Send");
    expect((await tool.post("/click", { target: "!!" })).status).toBe(400);
  });

  test("late, animated, jumping and far elements are clicked", async () => {
    for (const [path, target, title] of [
      ["/late", "text=Arrived", "Clicked"],
      ["/moving", "#m", "Hit"],
      ["/jumping", "#j", "Hit"],
      ["/far", "text=Bottom", "Hit"],
      ["/clearing", "#b", "Hit"],
      ["/pulsing", "#p", "Hit"],
      ["/rolling", "#r", "Hit"],
    ] as const) {
      await open(path);
      const { status } = await tool.post("/click", { target, timeout_ms: 10_000 });
      expect([path, status, await tool.evaluate("document.title")]).toEqual([path, 200, title]);
    }
  });

  test("an element that is scrolled away inside a list or below a fixed header is scrolled to", async () => {
    await open("/inner");
    await tool.post("/click", { target: "#b15" });
    expect(await tool.evaluate("document.title")).toBe("Hit 15");
    await tool.evaluate("scrollTo(0, low.offsetTop - 10)");
    await tool.post("/click", { target: "#low" });
    expect(await tool.evaluate("document.title")).toBe("Low");
  });

  test("a value that a field does not take is refused and leaves the field as it was", async () => {
    await open("/values");
    for (const [target, text, hint] of [
      ["#color", "redd", "#ff8800"],
      ["#range", "99", "from 0 to 10"],
      ["#number", "many", "no number"],
      ["#when", "tomorrow", "2026-01-31T23:59"],
      ["#file", "/etc/hostname", "give their paths as files"],
    ] as const) {
      const { status, body } = await tool.post("/type", { target, text });
      expect([target, status, body.error?.code]).toEqual([target, 409, "element_not_actionable"]);
      expect(body.error.message).toContain(hint);
    }
    await tool.post("/type", { target: "#number", text: "-1.5e3" });
    expect(await tool.evaluate("[color.value, range.value, number.value]")).toEqual([
      "#112233",
      "3",
      "-1.5e3",
    ]);
  });

  test("an answer to a dialog holds for its action only", async () => {
    await open("/keys");
    await tool.post("/click", { target: "#k", dialog: { accept: false } });
    expect(await tool.evaluate("confirm('Sure?')")).toBe(true);
  });

  test("a covered element is not clicked, and the cover is named", async () => {
    await open("/covered");
    const { status, body } = await tool.post("/click", { target: "#b", timeout_ms: 400 });
    expect(status).toBe(409);
    expect(body.error.code).toBe("element_covered");
    expect(body.error.message).toContain('id="veil"');
    expect(await tool.evaluate("document.title")).toBe("Covered");
  });

  test("an element without a box of its own is clicked at what it holds", async () => {
    await open("/contents");
    for (const id of ["text", "child", "nested"]) {
      expect((await tool.post("/click", { target: `#${id}` })).body.title).toBe(id);
    }
  });

  test("after several lines the caret is at their end", async () => {
    await open("/editor");
    for (const id of ["rich", "plain"]) {
      await tool.post("/type", { target: `#${id}`, text: "one\ntwo" });
      await tool.post("/press-key", { key: "!" });
    }
    expect(await tool.evaluate("[rich.innerText.trim().split(/\\n+/), plain.value]")).toEqual([
      ["one", "two!"],
      "one\ntwo!",
    ]);
  });

  test("selector and ref are other names of target, on every operation and in a batch", async () => {
    await open("/editor");
    await tool.post("/type", { selector: "#plain", text: "one" });
    await tool.post("/type", { ref: "#rich", text: "two" });
    const steps = [{ op: "type", selector: "#plain", text: "+", append: true }];
    expect((await tool.post("/batch", { steps })).body.completed).toBe(1);
    expect(await tool.evaluate("[plain.value, rich.innerText.trim()]")).toEqual(["one+", "two"]);
    expect(
      (await tool.post("/click", { selector: "#nowhere", timeout_ms: 200 })).body.error.message,
    ).toContain("#nowhere");
    const both = await tool.post("/type", { target: "#plain", selector: "#rich", text: "three" });
    expect(both.body.value).toBe("three");
  });

  test("a checkbox behind its styled label is clicked through it", async () => {
    await open("/box");
    await tool.post("/click", { target: "#c" });
    expect(await tool.evaluate("c.checked")).toBe(true);
  });

  test("keys with modifiers arrive as the page expects them", async () => {
    await open("/keys");
    await tool.post("/click", { target: "#k" });
    for (const key of ["Control+a", "Shift+ArrowLeft", "Enter", "?"]) await tool.post("/press-key", { key });
    expect(await tool.evaluate("log.textContent")).toBe(
      "C-Control-ControlLeft C-a-KeyA S-Shift-ShiftLeft S-ArrowLeft-ArrowLeft Enter-Enter S-?-Slash ",
    );
    expect((await tool.post("/press-key", { key: "Hyper+q" })).body.error.code).toBe("invalid_request");
    await tool.evaluate("log.textContent = ''");
    for (const key of ["enter", "ctrl+A", "Shift+A", "arrowdown", "f2", "A"])
      await tool.post("/press-key", { key });
    expect(await tool.evaluate("log.textContent")).toBe(
      "Enter-Enter C-Control-ControlLeft C-a-KeyA S-Shift-ShiftLeft S-A-KeyA ArrowDown-ArrowDown F2-F2 S-A-KeyA ",
    );
  });

  test("wait-for-selector waits for each state and reports what it waited for", async () => {
    await open("/late");
    expect((await tool.post("/wait-for-selector", { selector: "button" })).body).toEqual({ matches: 1 });
    expect((await tool.post("/wait-for-selector", { selector: "i", state: "detached" })).status).toBe(200);
    const never = await tool.post("/wait-for-selector", { selector: "i", timeout_ms: 200 });
    expect(never.status).toBe(504);
    expect(never.body.error.message).toStartWith("Timeout 200ms exceeded.");
    expect((await tool.post("/wait-for-selector", {})).body.error.message).toContain("target: is required");
  });

  test("evaluate takes expressions, functions, statements and elements", async () => {
    await open("/keys");
    expect(await tool.evaluate("1 + 1")).toBe(2);
    expect(await tool.evaluate("async () => (await Promise.resolve(document.title))")).toBe("Keys");
    expect(await tool.evaluate("const a = 2; a * 3")).toBe(6);
    expect(await tool.evaluate("const b = [1]; return b")).toEqual([1]);
    expect(await tool.evaluate("() => { return 4 };\n")).toBe(4);
    const broken = await tool.post("/evaluate", { expression: "const c = await 1; c" });
    expect(broken.body.error.message).toContain("async () =>");
    expect((await tool.post("/evaluate", { expression: "void 0" })).body).toEqual({
      json: null,
      cut_from: null,
    });
    const onElement = await tool.post("/evaluate", {
      expression: "(e) => e.value",
      target: await tool.ref("textbox"),
    });
    expect(onElement.body.value).toBe("hello world");
    const thrown = await tool.post("/evaluate", { expression: "() => { throw new TypeError('nope') }" });
    expect(thrown.status).toBe(422);
    expect(thrown.body.error.message).toContain("TypeError: nope");
    const cut = await tool.post("/evaluate", { expression: "'x'.repeat(5000)", max_chars: 100 });
    expect([cut.body.json.length, cut.body.cut_from]).toEqual([100, 5002]);
  });
});
