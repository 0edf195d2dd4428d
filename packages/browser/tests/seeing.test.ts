import { afterAll, beforeAll, expect, test } from "bun:test";
import { chromium } from "playwright-core";
import { ToolError } from "../src/errors.ts";
import { Deadline } from "../src/page/deadline.ts";
import type { Frame } from "../src/page/frame.ts";
import { adoptListening } from "../src/page/listeners.ts";
import { onEachEngine } from "./engines.ts";
import { chromiumPath, type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

/** What a snapshot shows beyond names and roles, and beyond what Playwright's shows. */
onEachEngine("the snapshot shows", (engine) => {
  let tool: Tool;
  let site: Site;
  const pages: Parameters<typeof startSite>[0] = {};

  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  /** The snapshot of a page without its refs, which depend on what was opened before. */
  async function see(body: string, query = ""): Promise<string> {
    pages["/page"] = `<title>Page</title>${body}`;
    await tool.post("/navigate", { url: `${site.url}/page` });
    return withoutRefs(await tool.snapshot(query));
  }

  const withoutRefs = (yaml: string) => yaml.replace(/ \[ref=\w+\]/g, "");

  const lines = (yaml: string, ...wanted: string[]) => {
    const found = yaml.split("\n").map((line) => line.trim());
    for (const line of wanted) expect(found, yaml).toContain(line);
  };

  test("editable elements with their text", async () => {
    const yaml = await see(
      `<div contenteditable aria-label="Note">Hello <b>you</b></div><div role="textbox" contenteditable="plaintext-only"
      aria-label="Box">in it</div><div contenteditable id="empty" style="height:20px"></div><p contenteditable="false">fixed</p>`,
    );
    lines(yaml, '- generic "Note" [editable]: Hello you', '- textbox "Box" [editable]: in it');
    lines(yaml, "- generic [editable]:", "- /hint: div#empty", "- paragraph: fixed");
    await tool.evaluate("document.designMode = 'on'");
    expect(withoutRefs(await tool.snapshot())).toMatch(/^- generic( \[active\])? \[editable\]/);
  });

  test("how far sliders, progress bars, meters and spin buttons are", async () => {
    const yaml = await see(
      `<div role="slider" aria-label="Volume" tabindex="0" aria-valuenow="30" aria-valuemin="0" aria-valuemax="50">.</div>
      <div role="slider" aria-label="Size" aria-valuenow="2" aria-valuetext="medium" tabindex="0"></div>
      <div role="spinbutton" aria-label="Rooms" aria-valuenow="3" tabindex="0">3</div>
      <progress aria-label="Upload" value="1" max="2">half</progress><progress aria-label="Wait"></progress>
      <meter aria-label="Disk" min="10" max="20" value="15">some</meter><input type="range" aria-label="Level" value="3">`,
    );
    lines(yaml, '- slider "Volume": 30 (0 to 50) .', '- slider "Size": medium', '- spinbutton "Rooms": 3 3');
    lines(
      yaml,
      '- progressbar "Upload": 1 (0 to 2)',
      '- progressbar "Wait"',
      '- meter "Disk": 15 (10 to 20)',
    );
    lines(yaml, '- slider "Level": "3"');
  });

  test.skipIf(engine.lacks("listeners of elements"))(
    "what can be clicked or focused though it has no name",
    async () => {
      const yaml = await see(
        `<style>.icon { display: inline-block; width: 16px; height: 16px }</style>
      <p>Mail <span class="icon" id="trash" style="background: url(/img/trash.png)"></span> <span id="yes">Yes</span> <span>No</span></p>
      <div id="red" class="icon" style="background: red"></div><div class="icon" style="background: blue"></div>
      <svg width="60" height="60"><circle id="ring" cx="20" cy="20" r="10" fill="green"/><rect x="40" width="9" height="9"/></svg>
      <span class="icon handle" tabindex="0"></span><i class="icon star" onclick="1"></i><button><svg class="bin" width="9" height="9"/></button>
      <input name="mail"><canvas id="board" width="50" height="50"></canvas>
      <script>for (const id of ["trash", "yes", "red", "ring"]) document.getElementById(id).addEventListener("mousedown", () => {});</script>`,
      );
      lines(yaml, "- /hint: span#trash.icon src=trash.png", '- generic [clickable]: "Yes"', '- text: "No"');
      lines(yaml, "- /hint: div#red.icon background=rgb(255, 0, 0)", "- /hint: circle#ring fill=green");
      lines(
        yaml,
        "- /hint: span.icon.handle",
        "- /hint: i.icon.star",
        "- /hint: svg.bin",
        "- /hint: canvas#board",
      );
      lines(yaml, "- /hint: input name=mail");
      expect(yaml).not.toContain("rgb(0, 0, 255)");
      expect(yaml).not.toContain("rect");
    },
  );

  test.skipIf(engine.lacks("listeners of elements"))(
    "what begins to listen after the first look, and can be clicked by the ref then",
    async () => {
      await see(
        `<p>Say <span id="a">Yes</span> <span id="b">No</span></p><script>
      globalThis.listen = () => b.addEventListener("click", () => { document.title = "hit" });</script>`,
      );
      await tool.evaluate("listen()");
      await tool.post("/click", { target: await tool.ref('"No"') });
      expect(await tool.evaluate("document.title")).toBe("hit");
    },
  );

  test("the rest where the engine does not tell who listens", async () => {
    const refuse = async () => {
      throw new ToolError("not_supported", "DOMDebugger.getEventListeners");
    };
    const frame = { mainContextId: 1, session: { send: refuse } } as unknown as Frame;
    expect(await adoptListening(frame, 1, new Deadline(1_000))).toBe(0);
  });

  test("pictures without a text, but no icons of controls", async () => {
    const yaml = await see(
      `<img src="/a/logo.png?v=2" width="90" height="30"><a href="/home"><img src="home.gif" width="20" height="20"></a>
      <button><img src="x.png" width="20" height="20">Save</button><img alt="" src="line.png" width="90" height="30">
      <figure><img src="cat.jpg" width="90" height="30"><figcaption>A cat</figcaption></figure><svg width="12" height="12"></svg>`,
    );
    lines(yaml, "- /hint: img src=logo.png", "- /hint: img src=home.gif", '- button "Save"', '- img "A cat"');
    expect(yaml).not.toContain("x.png");
    expect(yaml).not.toContain("line.png");
    expect(yaml.match(/- img/g)).toHaveLength(2);
  });

  test("the areas of an image map, links of drawings, and groups of options", async () => {
    const yaml = await see(
      `<map name="m"><area href="/n" shape="rect" coords="0,0,9,9" alt="North"></map><map name="none"><area href="/x" alt="Nowhere"></map>
      <img usemap="#m" alt="Map" src="m.png" width="40" height="40"><svg width="40" height="40"><a xlink:href="/s" xlink:title="South">
      <circle cx="9" cy="9" r="9"/></a></svg><select aria-label="Fruit"><optgroup label="Red"><option>Cherry</option></optgroup></select>`,
    );
    lines(
      yaml,
      '- link "North" [cursor=pointer]:',
      "- /url: /n",
      '- link "South" [cursor=pointer]:',
      "- /url: /s",
    );
    lines(yaml, '- group "Red":', '- option "Cherry" [selected]');
    expect(yaml).not.toContain("Nowhere");
  });

  test("what is inert, by its attribute or through a modal dialog", async () => {
    const body = `<main><section inert><p>Before</p><button>Dead</button></section><button id="o">Alive</button></main>
      <dialog id="d"><h2>Sure?</h2><button>OK</button></dialog>`;
    const yaml = await see(body);
    expect(yaml).toMatch(
      /- generic \[inert\]:\n\s+- paragraph: Before\n\s+- button "Dead"\n\s+- button "Alive"$/m,
    );
    await tool.evaluate("d.showModal()");
    const open = withoutRefs(await tool.snapshot());
    lines(open, "- main [inert]:", '- button "Alive"', '- dialog "Sure?":', '- button "OK" [active]');
    expect(withoutRefs(await tool.snapshot("?target=%23o"))).toBe('- button "Alive" [inert]');
  });

  test("what is covered, and not what is only scrolled away", async () => {
    const yaml = await see(
      `<div style="position:relative;width:200px"><button>Under</button><div style="position:absolute;inset:0;background:#0003"></div></div>
      <div style="position:relative"><label style="position:relative"><input type="checkbox"><span style="position:absolute;inset:0">Tick</span></label></div>
      <div style="height:60px;overflow:auto;position:relative"><div style="height:200px">long</div><button>Below</button></div>
      <div style="position:absolute;top:130px;height:60px;width:300px;background:#eee">Over the list's rest</div>
      <a href="#x" style="position:relative">Free<b style="position:absolute;inset:0"></b></a>`,
    );
    lines(yaml, '- button "Under" [covered]', '- checkbox "Tick"', '- button "Below"');
    expect(yaml.match(/\[covered\]/g)).toHaveLength(1);
    const header = `<div style="position:fixed;top:0;height:60px;width:100%;background:#eee">Header</div><a href="#a">Top</a>`;
    expect(await see(`${header}<p style="height:3000px">long</p>`)).not.toContain("[covered]");
    expect(await see(header)).toContain('link "Top" [covered]');
    const wall = `<div style="position:fixed;inset:0;background:#0003"></div>`;
    expect(await see(`<a href="#a">Top</a><p style="height:3000px">long</p>${wall}`)).toContain("[covered]");
  });

  test("elements where aria-owns and slots put them", async () => {
    const yaml = await see(
      `<ul aria-label="Menu" aria-owns="late gone"><li>One</li></ul><p>Between</p><ul><li id="late">Two</li></ul>
      <div id="host"><b slot="s">slotted</b></div><script>
      host.attachShadow({ mode: "open" }).innerHTML = "<h2>Before</h2><div aria-hidden=true><slot name=s></slot></div><h2>After</h2>"</script>`,
    );
    expect(yaml).toContain(
      '- list "Menu":\n    - listitem: One\n    - listitem: Two\n  - paragraph: Between',
    );
    expect(yaml.indexOf("Before")).toBeLessThan(yaml.indexOf("slotted"));
    expect(yaml.indexOf("slotted")).toBeLessThan(yaml.indexOf("After"));
  });

  test("text as styles make it, the same in names and in what stands in them", async () => {
    const yaml = await see(
      `<style>body { counter-reset: n } h3::before { counter-increment: n; content: counter(n, upper-roman) ". " }
      .up { text-transform: uppercase } .star::after { content: "*" / "required" }</style>
      <h3>First</h3><h3>Second</h3><button class="up">Save it</button><p class="up">quiet <span>please</span></p>
      <label class="star" for="f">Mail</label><input id="f"><p>He said <q>no <q>never</q></q></p><button>Buy&nbsp;now</button>`,
    );
    lines(yaml, '- heading "I. First" [level=3]', '- heading "II. Second" [level=3]', '- button "SAVE IT"');
    lines(yaml, "- paragraph: QUIET PLEASE", '- textbox "Mail required"', "- generic: “no ‘never’”");
    lines(yaml, '- button "Buy\u00a0now"');
    for (const target of ['role=button[name="Save it"]', 'role=button[name="Buy now"]', "text=save it"])
      expect((await tool.get(`/a11y?target=${encodeURIComponent(target)}`)).status).toBe(200);
  });

  test("forms whose controls have the names of what every element has, and owners that own each other", async () => {
    const names = ["id", "localName", "tagName", "children", "title", "classList", "attributes"];
    const fields = names.map((name) => `<input name="${name}">`).join("");
    const yaml = await see(
      `<form>${fields}<button>Send</button></form><div id="a" aria-owns="b">A</div><div id="b" aria-owns="a b">B</div>`,
    );
    lines(yaml, '- button "Send"', "- /hint: input name=localName");
    expect(yaml.match(/: [AB]$/gm)).toHaveLength(2);
  });

  test("frames by their title, and a dialog by its heading", async () => {
    const yaml = await see(
      `<iframe title="Map" src="about:blank"></iframe><div role="dialog"><h2>Delete?</h2><button>Yes</button></div>`,
    );
    lines(yaml, '- iframe "Map"', '- dialog "Delete?":', '- heading "Delete?" [level=2]');
  });

  test("a target with its name and role, also where the whole page does without", async () => {
    await see(
      `<h1 id="h"><a href="/a">All <i>of</i> it</a></h1><div id="n" role="none"><span id="s">text</span></div>`,
    );
    const at = async (id: string) => withoutRefs(await tool.snapshot(`?target=%23${id}`)).split("\n")[0];
    expect(await at("h")).toBe('- heading "All of it" [level=1]:');
    expect(await at("n")).toBe("- generic: text");
    expect(await at("s")).toBe("- generic: text");
  });

  test("all of a small page, however deep and full of white space it is", async () => {
    const blanks = "\n<!-- -->\n<template></template>\n".repeat(10);
    const nest = (depth: number): string =>
      depth === 0
        ? "<button>A</button><button>B</button><button>C</button>"
        : `<div>${blanks}<p>${depth}</p>${nest(depth - 1)}${blanks}</div>`;
    const yaml = await see(nest(12));
    lines(yaml, '- button "A"', '- button "B"', '- button "C"');
    expect(yaml).not.toContain("/more");
  });

  test.skipIf(engine.lacks("text of PDFs"))(
    "the text of a PDF, in parts, as a page and inside one",
    async () => {
      const maker = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
      const page = await maker.newPage();
      const paragraphs = Array.from({ length: 300 }, (_, i) => `<p>Paragraph ${i}: of many words.</p>`);
      await page.setContent(`<title>Report</title><h1>Yearly report</h1>${paragraphs.join("")}`);
      const pdf = new Uint8Array(await page.pdf());
      await maker.close();
      pages["/report.pdf"] = () => new Response(pdf, { headers: { "content-type": "application/pdf" } });
      await tool.post("/navigate", { url: `${site.url}/report.pdf` });
      // On a busy machine the viewer may not answer in time, which the snapshot says.
      await until("the viewer answers", async () => !(await tool.snapshot()).includes("does not respond"));
      const { body } = await tool.get("/a11y?max_chars=3000");
      expect(body.snapshot).toMatch(/- document "Report" \[pages=\d+\]:\n\s+- text: Yearly report\n/);
      expect(body.truncated).toBe(true);
      expect(body.snapshot.length).toBeLessThanOrEqual(3_000);
      const seen = new Set<string>();
      for (let query = "?max_chars=3000"; ; ) {
        const part = await tool.snapshot(query);
        for (const match of part.matchAll(/Paragraph (\d+): of many words\./g)) seen.add(match[1]!);
        const more = /\\"target\\":\\"(\w+)\\",\\"offset\\":(\d+)/.exec(part);
        if (!more) break;
        query = `?max_chars=3000&target=${more[1]}&offset=${more[2]}`;
      }
      expect(seen.size).toBe(300);
    },
    60_000,
  );

  test.skipIf(engine.lacks("text of PDFs"))(
    "the text of a PDF inside a page, and leaves nothing selected",
    async () => {
      const inside = await see(
        `<p>See</p><embed src="/report.pdf" type="application/pdf" width="400" height="300">`,
      );
      const { frames } = await (await tool.session.browser()).page();
      const viewer = [...frames.values()].find((frame) => frame.url.startsWith("chrome-extension:"))!;
      const { result } = await viewer.session.send("Runtime.evaluate", {
        expression: `import("./pdf_viewer_wrapper.js").then((m) => m.PluginController.getInstance().getSelectedText())`,
        contextId: viewer.mainContextId!,
        awaitPromise: true,
        returnByValue: true,
      });
      expect(result.value.selectedText).toBe("");
      expect(inside).toContain("- text: Yearly report");
    },
    60_000,
  );
});
