import { afterAll, beforeAll, expect, test } from "bun:test";
import { chromium } from "playwright-core";
import { onEachEngine } from "./engines.ts";
import { chromiumPath, type Site, startSite, startTool, type Tool } from "./helpers.ts";

/**
 * Pages whose snapshots must be the same, byte for byte, as those that agents know from Playwright. Where the tool
 * shows more (values of progress bars, pictures without a text and so on) is tested in seeing.test.ts.
 */
const corpus: Record<string, string> = {
  "/basic": `<title>Basic</title><h1>Hello</h1><p>Some <b>bold</b> and <em>soft</em> text</p><a href="/docs">Docs</a>`,
  "/form": `<form><label>Name <input value="Ann"></label><label for="m">Mail</label><input id="m" placeholder="you@x">
    <input type="checkbox" checked aria-label="News"><input type="radio" name="r" aria-label="One"><select aria-label="Size">
    <option>Small</option><option selected>Large</option></select><textarea aria-label="Notes">text</textarea>
    <button disabled>Off</button><button aria-pressed="true">Bold</button><input type="submit">
    <input type="range" aria-label="Level" value="3"></form>`,
  "/table": `<table><caption>Prices</caption><thead><tr><th>Item</th><th>Price</th></tr></thead>
    <tbody><tr><td>Tea</td><td>2: 50</td></tr><tr><td>Cake</td><td><a href="#c">3.00</a></td></tr></tbody></table>`,
  "/lists": `<nav aria-label="Main"><ul><li><a href="/a">A</a></li><li><a href="/b">B</a></li></ul></nav>
    <main><ol><li>one</li><li>two <button>x</button></li></ol><dl><dt>T</dt><dd>D</dd></dl></main><footer>end</footer>`,
  "/aria": `<div role="dialog" aria-label="Confirm"><h2>Sure?</h2><div role="button" tabindex="0" aria-expanded="true">Yes</div>
    <div role="tablist"><div role="tab" aria-selected="true">One</div><div role="tab">Two</div></div>
    <div role="heading" aria-level="3">Sub</div><div role="none"><span>in none</span></div></div>
    <div aria-hidden="true">hidden <button>seen</button></div><span role="img" aria-label="star"></span>`,
  "/hidden": `<div style="display:none">no</div><div style="visibility:hidden">no <b style="visibility:visible">yes</b></div>
    <details><summary>More</summary>inside</details><details open><summary>Open</summary>shown</details><img alt="" src="x"><img alt="pic" src="x">`,
  "/pointer": `<div style="cursor:pointer" onclick="1"><span>Row</span><div><span>deep</span></div></div>
    <div style="pointer-events:none"><button>dead</button></div><div><div><div><button>nested</button></div></div></div>`,
  "/shadow": `<div id="h"><span slot="s">slotted</span></div><script>h.attachShadow({mode:'open'}).innerHTML='<h2>In shadow</h2><slot name="s"></slot><button>Deep</button>'</script>`,
  "/text": `<p>yes</p><p>- dash</p><p>key: value</p><p>"quoted" #hash</p><p>12</p><p>{x}</p><p>a&nbsp;b</p><p>true</p>`,
  "/css": `<style>.a::before{content:"pre "}.a::after{content:" post"}</style><p class="a">mid</p><button class="a">b</button>`,
  "/label": `<span id="l">Label here</span><input aria-labelledby="l"><button aria-label="Close"><svg width="9" height="9"><title>x</title></svg></button>
    <fieldset><legend>Group</legend><label><input type="checkbox">Pick <input type="number" value="5"> times</label></fieldset><figure><img alt="f" src=x><figcaption>Cap</figcaption></figure>`,
};

onEachEngine("the snapshot", (engine) => {
  let tool: Tool;
  let site: Site;
  const items = Array.from(
    { length: 3_000 },
    (_, i) => `<li><a href="/item/${i}">Item ${i}</a> <button>Buy ${i}</button></li>`,
  );
  beforeAll(() => {
    tool = startTool({ engine });
    let big = "";
    for (let i = 0; big.length < 10_000_000; i++)
      big += `<section><h2>Part ${i}</h2><p>${"lorem ipsum ".repeat(200)}</p><div><a href="/p/${i}">link ${i}</a></div></section>`;
    site = startSite({
      ...corpus,
      "/list": `<title>List</title><h1>Things</h1><ul>${items.join("")}</ul><footer>The end</footer>`,
      "/big": `<title>Big</title>${big}<footer>The end</footer>`,
      "/deep": `<title>Deep</title>${"<div>".repeat(6_000)}<button>bottom</button>`,
      "/one": `<title>One</title><p>${"word ".repeat(100_000)}</p><button>after</button>`,
      "/closed": `<title>Closed</title><div id="h"></div><x-box></x-box><script>
        h.attachShadow({mode:'closed'}).innerHTML = '<button onclick="document.title=\\'Closed hit\\'">In closed</button><i id="n"></i>';
        customElements.define('x-box', class extends HTMLElement { connectedCallback() {
          this.attachShadow({mode:'closed'}).innerHTML = '<label>Secret <input></label><div id="in"></div>';
        } });</script>`,
      "/frames": (request) => framePage(request),
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  /** Three levels of frames, each from another site than the one around it. */
  function framePage(request: Request): Response {
    const url = new URL(request.url);
    const level = Number(url.searchParams.get("level") ?? 0);
    const hosts = ["127.0.0.1", "localhost", "127.0.0.2", "127.0.0.3"];
    const inner =
      level < 3
        ? `<iframe width="700" height="${500 - level * 120}" src="http://${hosts[level + 1]}:${site.port}/frames?level=${level + 1}"></iframe>`
        : "";
    const html = `<!doctype html><title>Level ${level}</title><h2>Level ${level}</h2>
      <button onclick="this.textContent='pressed ${level}'">Press ${level}</button><input aria-label="Field ${level}">${inner}`;
    return new Response(html, { headers: { "content-type": "text/html" } });
  }

  const open = (path: string) => tool.post("/navigate", { url: site.url + path, timeout_ms: 60_000 });

  test.skipIf(engine.lacks("Chromium's styles"))("is byte-equal to Playwright's on a corpus", async () => {
    const other = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
    try {
      const page = await other.newPage();
      for (const path of Object.keys(corpus)) {
        await page.goto(site.url + path);
        const theirs = await page.ariaSnapshot({ mode: "ai" });
        await open(path);
        const ours = await tool.snapshot();
        expect(renumber(ours), path).toBe(renumber(theirs));
      }
    } finally {
      await other.close();
    }
  });

  /** Refs go on counting from page to page here; their order is what has to agree. */
  function renumber(yaml: string): string {
    const seen = new Map<string, string>();
    return yaml.replace(/\[ref=(\w+)\]/g, (_, ref: string) => {
      if (!seen.has(ref)) seen.set(ref, `e${seen.size + 1}`);
      return `[ref=${seen.get(ref)}]`;
    });
  }

  test("keeps refs while the element lives", async () => {
    await open("/form");
    const before = await tool.ref('button "Bold"');
    await tool.evaluate(
      "document.body.prepend(document.createElement('hr')), document.querySelector('[aria-pressed]').setAttribute('aria-label', 'Fat')",
    );
    expect(await tool.ref('button "Fat"')).toBe(before);
  });

  test("of a list of 3,000 items stays within the budget, keeps what follows, and can be gone through", async () => {
    await open("/list");
    const { body } = await tool.get("/a11y");
    expect(body.truncated).toBe(true);
    expect(body.snapshot.length).toBeLessThanOrEqual(24_000);
    expect(body.snapshot).toContain("contentinfo");
    const seen = new Set<string>();
    let query = "";
    for (let pages = 0; pages < 60; pages++) {
      const yaml = await tool.snapshot(query);
      for (const match of yaml.matchAll(/link "Item (\d+)"/g)) seen.add(match[1]!);
      const more = /"\{?.*?\\"target\\":\\"(\w+)\\",\\"offset\\":(\d+)/.exec(yaml);
      if (!more) break;
      query = `?target=${more[1]}&offset=${more[2]}&max_chars=50000`;
    }
    expect(seen.size).toBe(3_000);
  }, 60_000);

  test("of a 10 MB page and of 6,000 nested elements stays within the budget", async () => {
    await open("/big");
    const big = await tool.get("/a11y?timeout_ms=50000");
    expect(big.status).toBe(200);
    expect(big.body.snapshot.length).toBeLessThanOrEqual(24_000);
    expect(big.body.snapshot).toContain("/more:");
    await open("/deep");
    const deep = await tool.get("/a11y?timeout_ms=50000");
    expect(deep.status).toBe(200);
    expect(deep.body.snapshot.length).toBeLessThanOrEqual(24_000);
    await open("/one");
    const one = await tool.snapshot();
    expect(one).toContain(" characters]");
    expect(one).toContain('button "after"');
  }, 120_000);

  test("sees and clicks into closed shadow roots", async () => {
    await open("/closed");
    expect(await tool.snapshot()).toContain('button "In closed"');
    expect(await tool.snapshot()).toContain('textbox "Secret"');
    await tool.post("/click", { target: await tool.ref("In closed") });
    expect(await tool.evaluate("document.title")).toBe("Closed hit");
    await tool.post("/type", { target: await tool.ref('textbox "Secret"'), text: "psst" });
    expect(await tool.snapshot()).toMatch(/textbox "Secret".*: psst/);
  });

  test("clicks into a closed shadow root without a snapshot before", async () => {
    await open("/closed");
    expect((await tool.post("/click", { target: "text=In closed" })).status).toBe(200);
    expect(await tool.evaluate("document.title")).toBe("Closed hit");
  });

  test("stitches three nested cross-origin frames, and acts in each", async () => {
    await open("/frames");
    await tool.post("/wait-for-selector", { selector: "text=Press 3" });
    const yaml = await tool.snapshot();
    const indents = [0, 1, 2, 3].map(
      (level) =>
        yaml
          .split("\n")
          .find((line) => line.includes(`Press ${level}`))
          ?.search(/\S/) ?? -1,
    );
    expect(indents[0]).toBeGreaterThanOrEqual(0);
    expect(indents.toSorted((a, b) => a - b)).toEqual(indents);
    expect(yaml).toMatch(/button "Press 1" \[ref=f1e\d+\]/);
    for (const level of [3, 1]) {
      const clicked = await tool.post("/click", {
        target: await tool.ref(`Press ${level}`),
        timeout_ms: 15_000,
      });
      expect([level, clicked.status, JSON.stringify(clicked.body)]).toEqual([level, 200, expect.any(String)]);
      await tool.post("/type", { target: await tool.ref(`Field ${level}`), text: `typed ${level}` });
      const after = await tool.snapshot();
      expect(after).toContain(`pressed ${level}`);
      expect(after).toContain(`typed ${level}`);
    }
    const sent = await tool.post("/press-key", { key: "Control+a" });
    expect(sent.status).toBe(200);
    const value = await tool.post("/evaluate", {
      expression: "(e) => e.value",
      target: await tool.ref("Field 3"),
    });
    expect(value.body.value).toBe("typed 3");
  }, 60_000);
});
