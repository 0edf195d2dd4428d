import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

const html = (text: string, status = 200) =>
  new Response(text, { status, headers: { "content-type": "text/html" } });

describe("navigation", () => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool();
    site = startSite({
      "/end": "<title>End</title><p>end</p>",
      "/by-script": "<title>Way</title><script>location.href = '/end'</script><p>way</p>",
      "/by-meta": `<title>Way</title><meta http-equiv="refresh" content="0;url=/end"><p>way</p>`,
      "/push": `<title>Push</title><button onclick="history.pushState({}, '', location.href)">push</button>
        <script>onpopstate = () => { document.title = 'Popped' }</script>`,
      "/form": `<title>Form</title><form action="/end"><input name="q"></form>`,
      "/file": () => new Response("payload", { headers: { "content-disposition": "attachment" } }),
      "/has-file": `<title>Has</title><a href="/file" download>get</a>`,
      "/login": () =>
        new Response("no", { status: 401, headers: { "www-authenticate": 'Basic realm="test"' } }),
      "/nothing": () => new Response(null, { status: 204 }),
      "/broken": () => html("", 500),
      "/picture": () =>
        new Response(
          `<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90"><text y="20">Drawn</text></svg>`,
          { headers: { "content-type": "image/svg+xml" } },
        ),
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  const open = (path: string) => tool.post("/navigate", { url: site.url + path });

  test("a document that sends the browser on is followed", async () => {
    for (const path of ["/by-script", "/by-meta"]) {
      const { status, body } = await open(path);
      expect([path, status, body.title, body.still_loading]).toEqual([path, 200, "End", false]);
    }
  });

  test("a step back that changes nothing but the state arrives", async () => {
    await open("/push");
    await tool.post("/click", { target: "button" });
    const { status, body } = await tool.post("/back");
    expect([status, body.url]).toEqual([200, `${site.url}/push`]);
    expect(await tool.evaluate("document.title")).toBe("Popped");
  });

  test("a download that ended before does not make a failed navigation look well", async () => {
    await open("/has-file");
    const browser = await tool.session.browser();
    await tool.post("/click", { target: "a" });
    await until("the download has begun", () => browser.downloadsBegun === 1);
    browser.notices.add("download", "one that is not reported yet");
    const { status, body } = await tool.post("/navigate", { url: "http://127.0.0.1:1/" });
    expect([status, body.error?.code]).toEqual([502, "navigation_failed"]);
  });

  test("failures say what to do", async () => {
    for (const [path, hint] of [
      ["/login", "user:password@"],
      ["/nothing", "204"],
      ["/broken", "empty page"],
    ] as const)
      expect((await open(path)).body.error.message).toContain(hint);
    const https = await tool.post("/navigate", { url: site.url.replace("http:", "https:") });
    expect(https.body.error.message).toContain("try http://");
  });

  test("a script that leads to another document is waited for, and says so when it ends with its page", async () => {
    await open("/form");
    const sent = await tool.post("/evaluate", { expression: "document.forms[0].submit()" });
    expect(sent.body).toMatchObject({ navigated: true });
    expect(await tool.evaluate("document.title")).toBe("End");
    await open("/form");
    const lost = await tool.post("/evaluate", {
      expression: "location.href = '/end'; new Promise(() => {})",
    });
    expect([lost.status, lost.body.error.code]).toEqual([422, "evaluation_failed"]);
    expect(lost.body.error.message).toContain("went to another document");
  });

  test("a picture in SVG has a snapshot", async () => {
    await open("/picture");
    expect(await tool.snapshot()).toContain("Drawn");
  });
});
