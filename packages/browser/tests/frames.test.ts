import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

/** The same server under another name is another site, whose frames get a process of their own. */
const elsewhere = (request: Request, path: string) => `http://localhost:${new URL(request.url).port}${path}`;
const html = (text: string) =>
  new Response(`<!doctype html>${text}`, { headers: { "content-type": "text/html" } });

onEachEngine("frames and pages", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite({
      "/foreign": (request) =>
        html(`<title>Foreign</title><iframe src="${elsewhere(request, "/inner")}"></iframe>`),
      "/inner": `<button id="in">Inner</button>`,
      "/late": `<title>Late</title><script>setTimeout(() => {
        document.body.innerHTML = '<button id="late" onclick="document.title=\\'Hit\\'">Late</button>' }, 300)</script>`,
      "/empty": `<title>Empty</title><iframe id="f" title="Letter"></iframe>`,
      "/hangs": (request) =>
        html(
          `<title>Hangs</title><button>Outer</button><iframe src="${elsewhere(request, "/loop")}"></iframe>`,
        ),
      "/loop": `<button>Stuck</button><script>setTimeout(() => { for (;;); }, 0)</script>`,
      "/order": (request) =>
        html(`<title>Order</title><iframe src="${elsewhere(request, "/card")}"></iframe>`),
      "/card": `<form><input name="card" pattern="[0-9]{4}" required><button>Pay</button></form>`,
      "/objects": (request) =>
        html(`<title>Objects</title><object data="/inner" width="200" height="60">no objects here</object>
          <embed type="text/html" src="/consent-in" width="200" height="60"><object data="/none.png">No picture</object>
          <iframe src="${elsewhere(request, "/small-in")}">no frames here</iframe>`),
      "/consent": `<title>Consent</title><button class="ok" style="display:none">Accept</button><iframe src="/consent-in"></iframe>`,
      "/consent-in": `<button class="ok" onclick="top.document.title='Accepted'">Accept</button>`,
      "/small": (request) =>
        html(`<title>Small</title><iframe style="transform:scale(.5);transform-origin:0 0;width:600px;height:400px"
          src="${elsewhere(request, "/small-in")}"></iframe>`),
      "/small-in": `<button id="s" style="position:absolute;left:400px;top:300px" onclick="this.textContent='Hit'">x</button>`,
      "/opens": `<title>Opens</title><button onclick="window.open('/opened')">Open</button>
        <script>setTimeout(() => window.open('/opened'), 0)</script>`,
      "/opened": `<title>Opened</title><button onclick="document.title='Wrong'">One</button>`,
      "/closed-late": `<title>Closed</title><div id="host"></div><script>setTimeout(() => {
        host.attachShadow({mode:'closed'}).innerHTML = '<button id="c" onclick="document.title=\\'Hit\\'">C</button>' }, 300)</script>`,
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });

  test("a frame that was empty when it was first looked at is seen with what takes its place", async () => {
    await tool.post("/navigate", { url: `${site.url}/empty` });
    await tool.snapshot();
    await tool.evaluate(
      "new Promise((loaded) => { f.onload = loaded; f.srcdoc = '<p contenteditable>Dear</p>' }).then(() => 1)",
    );
    expect(await tool.snapshot()).toContain("Dear");
  });

  test("frames of the document before are forgotten", async () => {
    await open("/foreign");
    expect(await tool.snapshot()).toContain("Inner");
    await open("/late");
    const { status } = await tool.post("/click", { target: "#late" });
    expect([status, await tool.evaluate("document.title")]).toEqual([200, "Hit"]);
    await tool.post("/back");
    expect(await tool.snapshot()).toContain("Inner");
    expect((await tool.post("/click", { target: "#in" })).status).toBe(200);
  });

  test.skipIf(engine.lacks("frames in processes of their own"))(
    "a frame that hangs does not take its page along, and is freed",
    async () => {
      await open("/hangs");
      const first = await tool.snapshot();
      expect(first).toContain("Outer");
      expect(first).toContain("the frame does not respond");
      await tool.snapshot();
      expect(await tool.snapshot()).toContain("Stuck");
      const missing = await tool.post("/click", { target: "#nowhere", timeout_ms: 300 });
      expect([missing.status, missing.body.error.code]).toEqual([404, "element_not_found"]);
    },
  );

  test("what is hidden in the page and shown in a frame is found there", async () => {
    await open("/consent");
    expect((await tool.post("/click", { target: ".ok" })).status).toBe(200);
    expect(await tool.evaluate("document.title")).toBe("Accepted");
  });

  test("a form in a frame that is not sent names its field", async () => {
    await tool.post("/navigate", { url: `${site.url}/order` });
    const sent = { target: "[name=card]", text: "12", submit: true };
    for (const body of [
      (await tool.post("/type", sent)).body,
      (await tool.post("/click", { target: "button" })).body,
    ])
      expect(body.events).toEqual([{ kind: "form", text: expect.stringContaining('textbox "card"') }]);
  });

  test("documents in <object> and <embed> are seen and clicked", async () => {
    await tool.post("/navigate", { url: `${site.url}/objects` });
    const yaml = await tool.snapshot();
    const fallback = engine.lacks("fallback of objects") ? [] : ["No picture"];
    for (const text of ['button "Inner"', 'button "Accept"', 'button "x"', ...fallback])
      expect(yaml).toContain(text);
    expect(yaml).not.toContain("here");
    await tool.post("/click", { target: await tool.ref('button "Accept"') });
    expect(await tool.evaluate("document.title")).toBe("Accepted");
  });

  test("a frame that is drawn smaller is clicked at the right place", async () => {
    await open("/small");
    expect((await tool.post("/click", { target: "#s" })).status).toBe(200);
    const { body } = await tool.post("/evaluate", { target: "#s", expression: "(e) => e.textContent" });
    expect(body.value).toBe("Hit");
  });

  test("a closed shadow root that comes late is looked into", async () => {
    await open("/closed-late");
    expect((await tool.post("/wait-for-selector", { selector: "#c" })).status).toBe(200);
    expect((await tool.get("/dom?target=%23c")).body.html).toContain("<button");
    await tool.post("/click", { target: "#c" });
    expect(await tool.evaluate("document.title")).toBe("Hit");
  });

  test("a ref of a popup is not taken for an element of the page that opened it", async () => {
    await open("/opens");
    const opener = await tool.get("/pages").then(({ body }) => body.pages[0].id);
    await tool.post("/pages", { page: opener });
    const own = await tool.ref('button "Open"');
    const clicked = await tool.post("/click", { target: own });
    expect(clicked.body).toMatchObject({ opened_page: true, navigated: false });
    expect(JSON.stringify(clicked.body.events)).toContain(`${site.url}/opened`);
    const other = await tool.ref('button "One"');
    const wrong = await tool.post("/click", { target: own });
    expect([wrong.status, wrong.body.error.code]).toEqual([404, "stale_ref"]);
    await tool.post("/pages", { page: opener });
    await tool.snapshot();
    const stale = await tool.post("/click", { target: other });
    expect([stale.status, stale.body.error.code]).toEqual([404, "stale_ref"]);
  });
});
