import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

const html = (text: string, status = 200) =>
  new Response(text, { status, headers: { "content-type": "text/html" } });

const challenge = { "www-authenticate": 'Basic realm="test"', "content-type": "text/html" };

onEachEngine("navigation", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite({
      "/end": "<title>End</title><p>end</p>",
      "/by-script": "<title>Way</title><script>location.href = '/end'</script><p>way</p>",
      "/by-meta": `<title>Way</title><meta http-equiv="refresh" content="0;url=/end"><p>way</p>`,
      // The page is busy between the load event and the refresh, so the tool asks for its title before it leaves.
      "/by-busy-meta": `<title>Way</title><meta http-equiv="refresh" content="0;url=/end"><p>way</p>
        <script>onload = () => setTimeout(() => { for (const end = Date.now() + 300; Date.now() < end; ); })</script>`,
      "/push": `<title>Push</title><button onclick="history.pushState({}, '', location.href)">push</button>
        <script>onpopstate = () => { document.title = 'Popped' }</script>`,
      "/form": `<title>Form</title><form action="/end"><input name="q"></form>`,
      "/file": () => new Response("payload", { headers: { "content-disposition": "attachment" } }),
      "/has-file": `<title>Has</title><a href="/file" download>get</a>`,
      "/login": ({ headers }) =>
        headers.has("authorization")
          ? html(`<title>In</title>${headers.get("authorization")}`)
          : new Response("<h1>Log in first</h1>", { status: 401, headers: challenge }),
      "/plain-login": () => html("<h1>Log in first</h1>", 401),
      "/empty-login": () => new Response(null, { status: 401, headers: challenge }),
      "/login-link": ({ url }) =>
        html(`<a href="${url.replace("127.0.0.1", "me:too@localhost").replace("-link", "")}">in</a>`),
      "/uses-login": `<title>Uses</title><iframe src="/login"></iframe><a href="/login">go</a>
        <button onclick="fetch('/login').then((r) => { document.title = 'answer ' + r.status })">ask</button>`,
      "/elsewhere": ({ url }) => Response.redirect(`${url.replace("127.0.0.1", "localhost")}-in`, 302),
      "/elsewhere-in": ({ headers }) => html(`<title>${headers.get("authorization")}</title>`),
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
    for (const path of ["/by-script", "/by-meta", "/by-busy-meta"]) {
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
      ["/empty-login", "user:password@"],
      ["/nothing", "204"],
      ["/broken", "empty page"],
    ] as const)
      expect((await open(path)).body.error.message).toContain(hint);
    const https = await tool.post("/navigate", { url: site.url.replace("http:", "https:") });
    expect(https.body.error.message).toContain("try http://");
  });

  test("a server that asks for a login shows its own page, and does not block the one that asked it", async () => {
    for (const path of ["/login", "/plain-login"]) {
      const { status, body } = await open(path);
      expect([status, body.status]).toEqual([200, 401]);
      expect(await tool.snapshot()).toContain("Log in first");
    }
    await open("/uses-login");
    expect(await tool.snapshot()).toContain("Log in first");
    await tool.post("/click", { target: "text=ask" });
    await until("the answer", async () => (await tool.evaluate("document.title")) === "answer 401");
    expect((await tool.post("/click", { target: "text=go" })).body.url).toEndWith("/login");
    expect(await tool.snapshot()).toContain("Log in first");
  });

  test("a login in the address is sent to its origin, and nowhere else", async () => {
    const withLogin = site.url.replace("//", "//me:a%20b%25@");
    const { body } = await tool.post("/navigate", { url: `${withLogin}/login` });
    expect([body.title, body.url]).toEqual(["In", `${site.url}/login`]);
    expect(await tool.evaluate("document.body.innerText")).toBe(`Basic ${btoa("me:a b%")}`);
    await open("/uses-login");
    await tool.post("/click", { target: "text=ask" });
    await until("the answer", async () => (await tool.evaluate("document.title")) === "answer 200");
    expect((await open("/elsewhere")).body.title).toBe("null");
    await open("/login-link");
    expect((await tool.post("/click", { target: "a" })).body.title).toBe("In");
  });

  test("a certificate that nobody signed is refused, and taken when the tool is told to", async () => {
    const dir = mkdtempSync(join(tmpdir(), "certificate-test-"));
    const make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key -out cert -subj /CN=localhost";
    expect(Bun.spawnSync(make.split(" "), { cwd: dir, stderr: "ignore" }).exitCode).toBe(0);
    const tls = { key: Bun.file(join(dir, "key")), cert: Bun.file(join(dir, "cert")) };
    const server = Bun.serve({ port: 0, tls, fetch: () => html("<title>Signed by me</title>") });
    const url = `https://localhost:${server.port}/`;
    const trusting = startTool({ engine, ignoreHttpsErrors: true });
    try {
      expect((await tool.post("/navigate", { url })).body.error.message).toContain("--ignore-https-errors");
      expect((await trusting.post("/navigate", { url })).body.title).toBe("Signed by me");
    } finally {
      await trusting.stop();
      await server.stop(true);
      rmSync(dir, { recursive: true });
    }
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
