/**
 * Pages that behave like the widgets that people meet: what the libraries do with events is done here in a few lines.
 * Each was first tried on the library itself.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const items = ["A", "B", "C", "D"].map((id) => `<li id="${id}" style="height:40px">Item ${id}</li>`).join("");

/** As SortableJS: the browser's own drag, and no notice of the pointer while the list is still moving. */
const sortable = `<title>Sortable</title><ul id="list" style="width:200px;margin:0;padding:0">${items}</ul><script>
  let dragged, busyUntil = 0
  list.addEventListener('pointerdown', (e) => { e.target.draggable = true })
  list.addEventListener('dragstart', (e) => { dragged = e.target; e.dataTransfer.setData('text', dragged.id) })
  list.addEventListener('dragover', (e) => {
    e.preventDefault()
    const over = e.target.closest('li')
    if (!over || over === dragged || performance.now() < busyUntil) return
    const isBelow = [...list.children].indexOf(dragged) < [...list.children].indexOf(over)
    list.insertBefore(dragged, isBelow ? over.nextSibling : over)
    over.animate([{ transform: 'translateY(40px)' }, { transform: 'none' }], 120)
    busyUntil = performance.now() + 120
  })
  list.addEventListener('dragend', (e) => { document.title = 'dropped ' + e.dataTransfer.dropEffect })
</script>`;

/** As boards do: what a drop would take is drawn under the pointer, with an animation. */
const board = `<title>Board</title><p id="card" draggable="true" style="width:100px">Card</p>
  <div id="column" style="position:relative;width:200px;height:200px;background:#eee;overflow:hidden">
    <p id="place" style="position:absolute;inset:0;margin:0;transform:translateX(200px)">Let go here</p></div><script>
  let sliding
  card.addEventListener('dragstart', (e) => { e.dataTransfer.setData('text', 'card') })
  column.addEventListener('dragover', (e) => {
    e.preventDefault()
    sliding ??= place.animate([{}, { transform: 'none' }], { duration: 400, fill: 'forwards' })
  })
  card.addEventListener('dragend', (e) => { document.title = 'dropped ' + e.dataTransfer.dropEffect })
</script>`;

/** As React Flow and other diagrams: mouse events on the window, and lines drawn between handles. */
const diagram = `<title>Diagram</title><style>.node { position: absolute; width: 120px; height: 40px; background: #eee } .h { position: absolute; width: 10px; height: 10px; right: -5px; top: 15px; background: red }</style>
  <div id="n1" class="node" style="left:50px;top:50px">One<i class="h" id="h1"></i></div>
  <div id="n2" class="node" style="left:300px;top:250px">Two</div><p id="edges"></p><script>
  let start = null
  addEventListener('mousedown', (e) => { start = { x: e.clientX, y: e.clientY, node: e.target.closest('.node'), isLine: e.target.classList.contains('h') } })
  addEventListener('mousemove', (e) => {
    if (!start?.node || start.isLine || e.buttons !== 1) return
    start.node.style.left = start.node.offsetLeft + e.movementX + 'px'; start.node.style.top = start.node.offsetTop + e.movementY + 'px'
  })
  addEventListener('mouseup', (e) => { if (start?.isLine) edges.textContent = start.node.id + ' to ' + e.target.closest('.node')?.id; start = null })
</script>`;

/** As dnd-kit: pointer events, beyond a distance only, and items that give way while something passes over them. */
const dndkit = `<title>Pointer</title><ul id="list" style="width:200px;margin:0;padding:0">${items}</ul><script>
  let from = null
  list.onpointerdown = (e) => { from = { li: e.target.closest('li'), y: e.clientY } }
  document.onpointermove = (e) => {
    if (!from || Math.abs(e.clientY - from.y) < 8) return
    const shift = Math.round((e.clientY - from.y) / 40), all = [...list.children], at = all.indexOf(from.li)
    all.forEach((li, i) => { li.style.transform = i > at && i <= at + shift ? 'translateY(-40px)' : '' })
    from.to = at + shift
  }
  document.onpointerup = () => {
    for (const li of list.children) li.style.transform = ''
    if (from?.to !== undefined) { const rest = [...list.children].filter((li) => li !== from.li); rest.splice(from.to, 0, from.li); list.append(...rest) }
    from = null
  }
</script>`;

/** As Monaco: an EditContext that keeps the text, and lines that are only drawn. */
const editContext = `<title>EditContext</title><div id="frame"><div id="ed" role="textbox" tabindex="0" style="width:300px;height:80px;border:1px solid"></div></div><script>
  const context = new EditContext(); ed.editContext = context; let text = 'old text'; context.updateText(0, 0, text); context.updateSelection(8, 8)
  const draw = () => { ed.textContent = text }; draw()
  context.addEventListener('textupdate', (e) => { text = context.text; draw() })
  ed.addEventListener('keydown', (e) => { if (e.key === 'a' && (e.ctrlKey || e.metaKey)) { context.updateSelection(0, text.length); e.preventDefault() } })
</script>`;

/** As CodeMirror: an editable that draws a part of its text only, and learns of changes through beforeinput. */
const editor = `<title>Editor</title><div id="frame"><div id="ed" contenteditable style="width:300px"></div></div><script>
  let lines = Array.from({ length: 400 }, (_, i) => 'line ' + i), isAll = false
  const draw = () => { ed.replaceChildren(...lines.slice(0, 20).map((t) => Object.assign(document.createElement('div'), { textContent: t || '\\u200b' }))) }; draw()
  ed.addEventListener('keydown', (e) => { if (e.key === 'a' && (e.ctrlKey || e.metaKey)) { isAll = true; e.preventDefault() } })
  ed.addEventListener('beforeinput', (e) => { e.preventDefault(); if (e.inputType.startsWith('insert')) {
    lines = isAll ? (e.data ?? '').split('\\n') : [...lines.slice(0, -1), lines.at(-1) + (e.data ?? '')]; isAll = false; draw() } })
</script>`;

const box = `<input maxlength="1" size="1">`;
const otp = `<title>Code</title><form id="auto">${box.repeat(6)}</form><form id="plain">${box.repeat(6)}</form>
  <label>Paste <span id="paste">${'<input size="1">'.repeat(4)}</span></label><script>
  auto.oninput = (e) => e.target.nextElementSibling?.focus()
  paste.firstChild.oninput = (e) => { const all = [...e.target.value]; [...paste.children].forEach((b, i) => { b.value = all[i] ?? '' }) }
</script>`;

const rating = `<title>Rating</title><style>input { position: absolute; width: 1px; height: 1px; left: 0; top: 0; overflow: hidden; clip-path: inset(50%) }
  label { display: inline-block; width: 30px; height: 30px } p { position: relative }</style><p>${[
    1, 2, 3, 4, 5,
  ]
    .map(
      (n) =>
        `<label for="s${n}">☆</label><input type="radio" name="s" id="s${n}" aria-label="${n} Stars" value="${n}">`,
    )
    .join("")}</p>`;

/** As Monaco with a textarea, as wide as its caret: what is typed it indents, what is pasted it takes as it is. */
const keyboard = `<title>Keyboard</title><textarea id="k" style="width:1px;height:18px;border:0;padding:0"></textarea><pre id="code"></pre><script>
  k.oninput = () => { code.append(k.value.replaceAll('\\n', '\\n    ')); k.value = '' }
  k.onpaste = (e) => { e.preventDefault(); code.append(e.clipboardData.getData('text/plain')) }
</script>`;

const zone = `<title>Zone</title><input id="own" type="file" hidden><div id="clicks" style="height:50px">Choose</div>
  <div id="drops" style="height:50px" ondragover="event.preventDefault()" ondrop="event.preventDefault(); names.textContent = [...event.dataTransfer.files].map((f) => f.name)">Drop</div>
  <p id="names"></p><script>
  clicks.onclick = () => { const i = document.createElement('input'); i.type = 'file'; i.multiple = true; i.onchange = () => { names.textContent = [...i.files].map((f) => f.name) }; i.click() }
  own.onchange = async () => { names.textContent = 'own ' + await own.files[0].text() }
</script>`;

const tooltip = `<title>Tip</title><button id="t">Hover me</button><script>
  let timer; t.onpointerenter = () => { timer = setTimeout(() => document.body.insertAdjacentHTML('beforeend', '<div role="tooltip" id="tip">The tip</div>'), 150) }
  t.onpointerleave = () => { clearTimeout(timer); document.getElementById('tip')?.remove() }
</script>`;

/** As Radix Select: opens on the press and takes the pointer from everything else. */
const select = `<title>Select</title><button role="combobox" id="c">Pick</button><script>
  c.onpointerdown = () => { document.body.style.pointerEvents = 'none'; document.body.insertAdjacentHTML('beforeend',
    '<ul role="listbox" style="pointer-events:auto"><li role="option" onclick="c.textContent = this.textContent; document.body.style.pointerEvents = \\'\\'; this.parentNode.remove()">pear</li></ul>') }
</script>`;

/** As jQuery UI's autocomplete: a list that opens under the pointer does not believe the first movement over it. */
const completion = `<title>Completion</title><style>li { height: 30px; width: 100px }</style><button id="start" style="width:100px;height:30px">Start</button><ul id="list" style="position:absolute;top:8px;left:8px;margin:0;padding:0;background:#fff" hidden>
  <li>Taiwan</li><li>Tajikistan</li><li>Tanzania</li></ul><p id="chosen"></p><script>
  let active = null, isNew = false
  start.onclick = () => { list.hidden = false; isNew = true }
  for (const li of list.children) {
    li.onmouseenter = () => { if (!isNew) { active = li; return }; isNew = false; document.addEventListener('mousemove', () => { active = li }, { once: true }) }
    li.onclick = () => { chosen.textContent = active.textContent }
  }
</script>`;

const map = `<title>Map</title><img usemap="#m" width="200" height="100" src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E">
  <map name="m"><area id="left" shape="rect" coords="0,0,80,100" href="#left"><area id="right" shape="circle" coords="150,50,40" href="#right"></map>`;

const slider = `<title>Slider</title><div id="track" style="position:relative;width:300px;height:20px;background:#ddd"><span id="thumb" role="slider" tabindex="0"
  style="position:absolute;width:20px;height:20px;background:#333"></span></div><p id="v">0</p><script>
  thumb.onpointerdown = (e) => { thumb.setPointerCapture(e.pointerId) }
  thumb.onpointermove = (e) => { if (thumb.hasPointerCapture(e.pointerId)) { const x = Math.max(0, Math.min(280, e.clientX - track.offsetLeft - 10)); thumb.style.left = x + 'px'; v.textContent = Math.round(x / 2.8) } }
</script>`;

const touch = `<meta name="viewport" content="width=device-width"><title>Touch</title><div id="card" style="width:100px;height:60px;background:#ccc;touch-action:none">Card</div><p id="log"></p><button id="b">Tap</button><script>
  let from; card.addEventListener('touchstart', (e) => { from = e.touches[0].clientX })
  card.addEventListener('touchmove', (e) => { card.style.transform = 'translateX(' + (e.touches[0].clientX - from) + 'px)' })
  card.addEventListener('touchend', () => { log.textContent = 'moved ' + new DOMMatrix(getComputedStyle(card).transform).e })
  b.addEventListener('touchstart', () => { b.dataset.touched = 1 }); b.onclick = () => { log.textContent = 'tapped ' + (b.dataset.touched ?? 'by mouse') }
</script>`;

onEachEngine("widgets", (engine) => {
  let tool: Tool;
  let site: Site;
  const uploads = mkdtempSync(join(tmpdir(), "uploads-"));
  beforeAll(() => {
    mkdirSync(join(uploads, "sub"));
    writeFileSync(join(uploads, "one.txt"), "first");
    writeFileSync(join(uploads, "sub/two.txt"), "second");
    symlinkSync("/etc/hostname", join(uploads, "link"));
    symlinkSync(uploads, `${uploads}-link`);
    tool = startTool({ engine, uploadsDir: `${uploads}-link` });
    site = startSite({
      "/sortable": sortable,
      "/board": board,
      "/diagram": diagram,
      "/dndkit": dndkit,
      "/editcontext": editContext,
      "/editor": editor,
      "/keyboard": keyboard,
      "/otp": otp,
      "/rating": rating,
      "/zone": zone,
      "/tooltip": tooltip,
      "/select": select,
      "/map": map,
      "/completion": completion,
      "/slider": slider,
      "/touch": touch,
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    rmSync(`${uploads}-link`);
    rmSync(uploads, { recursive: true, force: true });
  });

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });
  async function done(path: string, body: object): Promise<string> {
    const answer = await tool.post(path, body);
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
    return answer.body.changes.replace(/ \[ref=\w+\]/g, "");
  }
  const order = () => tool.evaluate("[...list.children].map((li) => li.id).join('')");

  test("a sortable list with the browser's own drag, down and up", async () => {
    await open("/sortable");
    expect(await done("/click", { target: "#A", drag_to: { target: "#C" } })).toContain("listitem: Item C");
    expect([await order(), await tool.evaluate("document.title")]).toEqual([
      "BCAD",
      expect.stringMatching(/^dropped (copy|move)$/),
    ]);
    await done("/click", { target: "#D", drag_to: { target: "#B", x: 20, y: 4 } });
    expect(await order()).toBe("DBCA");
  });

  test("a place that slides under the pointer before it is let go", async () => {
    await open("/board");
    await done("/click", { target: "#card", drag_to: { target: "#column" } });
    expect(await tool.evaluate("document.title")).toMatch(/^dropped (copy|move)$/);
  });

  test("a list that is sorted with pointer events", async () => {
    await open("/dndkit");
    await done("/click", { target: "#A", drag_to: { target: "#C" } });
    expect(await order()).toBe("BCAD");
  });

  test("a diagram whose nodes are moved and joined", async () => {
    await open("/diagram");
    await done("/click", { target: "#n1", drag_to: { x: 400, y: 120 } });
    expect(await tool.evaluate("[n1.offsetLeft, n1.offsetTop]")).toEqual([340, 100]);
    expect(await done("/click", { target: "#h1", drag_to: { target: "#n2" } })).toContain("n1 to n2");
  });

  test.skipIf(engine.lacks("EditContext"))(
    "an EditContext is typed into, by focus and as a target, and replaced as a whole",
    async () => {
      await open("/editcontext");
      await done("/click", { target: "#ed" });
      await done("/type", { text: " and new" });
      expect(await tool.evaluate("text")).toBe("old text and new");
      await done("/type", { target: "#frame", text: "whole" });
      expect(await tool.evaluate("text")).toBe("whole");
    },
  );

  test("an editor that draws a part of its text is replaced as a whole, and appended to", async () => {
    await open("/editor");
    await done("/type", { target: "#ed", text: "one" });
    expect(await tool.evaluate("lines")).toEqual(["one"]);
    await done("/type", { target: "#frame", text: " more", append: true });
    expect(await tool.evaluate("lines")).toEqual(["one more"]);
  });

  test("an editor that reads the keyboard with a field of its own is given the text as it is", async () => {
    await open("/keyboard");
    await done("/type", { target: "#k", text: "f() {\n  g()\n}" });
    expect(await tool.evaluate("code.textContent")).toBe("f() {\n  g()\n}");
  });

  test("a code is typed into boxes that pass the focus on, that do not, and that take it at once", async () => {
    await open("/otp");
    for (const form of ["auto", "plain"]) {
      const { body } = await tool.post("/type", { target: `#${form} input`, text: "123456" });
      expect([form, body.value, body.events]).toEqual([form, "123456", undefined]);
      expect(await tool.evaluate(`[...${form}.elements].map((b) => b.value).join('')`)).toBe("123456");
    }
    const pasted = await tool.post("/type", { target: "#paste input", text: "9876" });
    expect([pasted.body.value, pasted.body.events]).toEqual(["9876", undefined]);
  });

  test("a rating whose radio buttons hide behind their stars", async () => {
    await open("/rating");
    expect(await done("/click", { target: 'role=radio[name="4 Stars"]' })).toContain(
      'radio "4 Stars" [checked]',
    );
  });

  test("files: into a hidden field, through a chooser, and dropped; from the uploads folder only", async () => {
    await open("/zone");
    await done("/type", { target: "#own", files: ["one.txt"] });
    expect((await tool.get("/a11y?wait_text=own%20first")).status).toBe(200);
    const chosen = {
      target: "#clicks",
      files: [join(uploads, "one.txt"), join(`${uploads}-link`, "sub/two.txt")],
    };
    expect(await done("/type", chosen)).toContain("one.txt,two.txt");
    const dropped = { target: "#drops", files: ["sub/two.txt"] };
    if (engine.lacks("files dropped from outside"))
      expect((await tool.post("/type", dropped)).body.error.code).toBe("not_supported");
    else expect(await done("/type", dropped)).toContain("two.txt");
    await done("/click", { target: "#clicks" });
    expect(await done("/type", { files: ["one.txt"] })).toContain("one.txt");
    for (const [file, code] of [
      ["../../etc/passwd", "forbidden"],
      ["/etc/passwd", "forbidden"],
      ["link", "forbidden"],
      ["sub", "invalid_request"],
      ["none.txt", "not_found"],
    ] as const) {
      const { body } = await tool.post("/type", { target: "#own", files: [file] });
      expect([file, body.error?.code]).toEqual([file, code]);
    }
    const unasked = await tool.post("/type", { files: ["one.txt"] });
    expect(unasked.body.error.message).toContain("opened no file chooser");
  });

  test("a tooltip that comes late and goes with the pointer", async () => {
    await open("/tooltip");
    await done("/click", { action: "hover", target: "#t" });
    const { body } = await tool.get("/a11y?wait_text=The%20tip");
    expect(body.snapshot).toContain("tooltip");
    expect(await done("/click", { action: "hover", position: { x: 400, y: 300 } })).toContain("- tooltip");
  });

  test("a list that opens on the press is opened once", async () => {
    await open("/select");
    expect(await done("/click", { target: "#c" })).toContain('option "pear"');
    expect(await tool.evaluate("document.querySelectorAll('[role=listbox]').length")).toBe(1);
    await done("/click", { target: "role=option" });
    expect(await tool.evaluate("c.textContent")).toBe("pear");
  });

  test("a list that opens under the resting pointer", async () => {
    await open("/completion");
    await done("/click", { target: "#start" });
    expect(await done("/click", { target: "text=Tanzania" })).toContain("Tanzania");
    expect(await tool.evaluate("chosen.textContent")).toBe("Tanzania");
  });

  test("the areas of an image map", async () => {
    await open("/map");
    for (const id of ["left", "right"]) {
      expect((await tool.post("/click", { target: `#${id}` })).body.url).toEndWith(`#${id}`);
    }
  });

  test("a slider whose thumb holds the pointer", async () => {
    await open("/slider");
    await done("/click", { target: "#thumb", drag_to: { target: "#track", x: 220, y: 10 } });
    expect(await tool.evaluate("v.textContent")).toBe("75");
  });

  test.skipIf(engine.lacks("touch and pixel ratios"))(
    "a finger taps and drags where the device has touch",
    async () => {
      expect((await tool.post("/resize", { device: "pixel" })).body).toEqual({ width: 412, height: 915 });
      await open("/touch");
      expect(await done("/click", { target: "#b" })).toContain("tapped 1");
      expect(
        await done("/click", { target: "#card", drag_to: { target: "#card", x: 150, y: 30 } }),
      ).toContain("moved 100");
      expect(
        await tool.evaluate(
          "[devicePixelRatio, navigator.maxTouchPoints, /Pixel 9/.test(navigator.userAgent)]",
        ),
      ).toEqual([2.625, 5, true]);
      expect((await tool.post("/resize", { device: "desktop" })).body).toEqual({ width: 1280, height: 720 });
      await open("/touch");
      expect(await done("/click", { target: "#b" })).toContain("tapped by mouse");
      expect(await tool.evaluate("/Pixel 9/.test(navigator.userAgent)")).toBe(false);
    },
  );
});
