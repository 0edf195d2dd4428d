import { afterAll, beforeAll, expect, test } from "bun:test";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { PipeTransport } from "../src/cdp/pipe.ts";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

const html = (text: string) =>
  new Response(`<!doctype html>${text}`, { headers: { "content-type": "text/html" } });

onEachEngine("nothing leaves the tool stuck", (engine) => {
  let tool: Tool;
  let site: Site;
  const downloads = mkdtempSync(join(tmpdir(), "downloads-test-"));
  beforeAll(() => {
    tool = startTool({ engine, downloadsDir: downloads });
    site = startSite({
      "/calls": `<title>Calls</title><a id="link" href="tel:123">Call</a>
        <button id="script" onclick="setTimeout(() => { location.href = 'zoommtg://join' })">Join</button>
        <a id="redirect" href="/to-application">Sign in</a><button id="window" onclick="window.open('foo:bar')">Window</button>
        <iframe id="f" src="about:blank"></iframe><button id="frame" onclick="f.src = '/to-application'">Frame</button>
        <button id="alive" onclick="document.title = 'Alive'">Alive</button>`,
      "/asks": `<title>Asks</title><button id="alive" onclick="document.title = 'Alive'">Alive</button>
        <button id="passkey" onclick="navigator.credentials.get({ publicKey: { challenge: new Uint8Array(16) } })">Passkey</button>
        <button id="screen" onclick="navigator.mediaDevices.getDisplayMedia()">Screen</button>`,
      "/to-application": () => new Response(null, { status: 302, headers: { location: "foo:signed-in" } }),
      "/": `<title>Home</title><h1>Home</h1>`,
      "/dialogs": `<title>Dialogs</title><button id="a" onclick="alert('hello');document.title='after alert'">Alert</button>
        <button id="c" onclick="document.title='confirm '+confirm('sure?')">Confirm</button>
        <button id="p" onclick="document.title='prompt '+prompt('name?','Bob')">Prompt</button>`,
      "/onload-alert": `<title>Loud</title><script>alert('first thing')</script><p>body</p>`,
      "/unload": `<title>Unload</title><button id="b">x</button><script>onbeforeunload = (e) => { e.preventDefault(); return 'stay' }</script>`,
      "/popup": `<title>Opener</title><button onclick="window.w = window.open('/child','_blank')">Open</button><a href="/child" target="_blank" rel="noopener">Link</a>`,
      "/child": `<title>Child</title><button onclick="window.close()">Close me</button>`,
      "/loop": `<title>Loop</title><button onclick="for(;;);">Spin</button>`,
      "/flood": `<title>Flood</title><button onclick="const end = performance.now() + 2000;
        while (performance.now() < end) console.log('line', { end }); this.textContent = 'Finished'">Write</button>`,
      "/alerts": `<title>Alerts</title><button onclick="for(;;) alert('again')">Nag</button>`,
      "/slow": () => new Promise<Response>(() => {}),
      "/to-file": () => Response.redirect("file:///etc/passwd", 302),
      "/to-metadata": () => Response.redirect("http://169.254.169.254/latest/meta-data", 302),
      "/goes-local": `<title>Sneaky</title><a id="f" href="file:///etc/passwd">file</a>
        <button id="m" onclick="location='http://169.254.169.254/x'">meta</button>
        <button id="i" onclick="fetch('http://169.254.1.2/y').catch(e => document.title = 'refused')">fetch</button>`,
      "/status": () =>
        new Response("<title>Gone</title>gone", { status: 410, headers: { "content-type": "text/html" } }),
      "/nothing": () => new Response(null, { status: 204 }),
      "/to-nothing": `<title>Stays</title><a href="/nothing">nothing</a>`,
      "/file.bin": () =>
        new Response("payload", { headers: { "content-disposition": 'attachment; filename="report.txt"' } }),
      "/has-file": `<title>Files</title><a href="/file.bin">get</a>`,
      "/hash": () => html(`<title>Hash</title><a href="#part">part</a>`),
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    rmSync(downloads, { recursive: true, force: true });
  });

  const open = (path: string, more = {}) => tool.post("/navigate", { url: site.url + path, ...more });
  const works = async () => expect((await open("/")).body.title).toBe("Home");
  const texts = (body: { events?: { text: string }[] }) =>
    (body.events ?? []).map(({ text }) => text).join("\n");

  test("alert, confirm and prompt are answered by policy and reported", async () => {
    await open("/dialogs");
    const alerted = await tool.post("/click", { target: "#a" });
    expect(alerted.body.title).toBe("after alert");
    expect(texts(alerted.body)).toBe('alert dialog "hello" was accepted');
    expect((await tool.post("/click", { target: "#c" })).body.title).toBe("confirm true");
    expect((await tool.post("/click", { target: "#p" })).body.title).toBe("prompt Bob");
    const declined = await tool.post("/click", { target: "#c", dialog: { accept: false } });
    expect(declined.body.title).toBe("confirm false");
    const named = await tool.post("/click", { target: "#p", dialog: { accept: true, prompt_text: "Eve" } });
    expect(named.body.title).toBe("prompt Eve");
    expect(texts((await open("/onload-alert")).body)).toContain("first thing");
    await works();
  });

  test("beforeunload does not hold a page", async () => {
    await open("/unload");
    await tool.post("/click", { target: "#b" });
    const left = await open("/");
    expect(left.body.title).toBe("Home");
    expect(texts(left.body)).toContain("beforeunload dialog");
  });

  test("a popup becomes the active page, and its opener when it is closed", async () => {
    await open("/popup");
    expect(texts((await tool.post("/click", { target: "text=Open" })).body)).toContain("new page was opened");
    await tool.post("/wait-for-selector", { selector: "text=Close me" });
    expect(await tool.evaluate("document.title")).toBe("Child");
    expect((await tool.get("/pages")).body.pages).toHaveLength(2);
    expect((await tool.post("/click", { target: "text=Close me" })).status).toBe(200);
    await until("the opener is active", async () => (await tool.evaluate("document.title")) === "Opener");
    await tool.post("/click", { target: "text=Link" });
    await tool.post("/wait-for-selector", { selector: "text=Close me" });
    const pages = (await tool.get("/pages")).body.pages as { id: string; active: boolean }[];
    const back = await tool.post("/pages", { close: "page", page: pages.find(({ active }) => active)!.id });
    expect(back.body.pages).toHaveLength(1);
    await works();
  });

  test("a crashed page is replaced, and says so", async () => {
    await works();
    const crash = await open("/", {}).then(async () => {
      const browser = await tool.session.browser();
      const page = await browser.page();
      page.session.send("Page.crash").catch(() => {});
      return tool.post("/evaluate", { expression: "new Promise(() => {})", timeout_ms: 5_000 });
    });
    expect(crash.status).toBe(409);
    expect(crash.body.error.code).toBe("page_crashed");
    await works();
  });

  test("an endless script is stopped at the deadline, and the page goes on", async () => {
    await open("/loop");
    const started = performance.now();
    const spun = await tool.post("/click", { target: "text=Spin", timeout_ms: 700 });
    expect(spun.status).toBe(504);
    expect(spun.body.error.message).toStartWith("Timeout 700ms exceeded.");
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(await tool.evaluate("document.title")).toBe("Loop");
    const evaluated = await tool.post("/evaluate", { expression: "for(;;);", timeout_ms: 500 });
    expect(evaluated.status).toBe(504);
    await works();
  });

  test("a script that fills the console is neither stopped nor taken for a hang", async () => {
    await tool.post("/navigate", { url: `${site.url}/flood` });
    const { status, body } = await tool.post("/click", { target: "button", timeout_ms: 700 });
    expect([status, body.still_loading]).toEqual([200, true]);
    expect(body.events[0].text).toContain("still busy");
    await tool.post("/wait-for-selector", { selector: "text=Finished", timeout_ms: 60_000 });
    expect((await tool.get("/console")).body.messages).not.toHaveLength(0);
  });

  test("what arrives from the browser after the end is passed over", async () => {
    const fromBrowser = new PassThrough();
    const transport = new PipeTransport({
      toBrowser: new PassThrough(),
      fromBrowser,
      endProcess: async () => {},
    });
    const heard: unknown[] = [];
    transport.onMessage = (message) => heard.push(message);
    fromBrowser.write('{"id":1}\0{"id":');
    await until("the first message", () => heard.length === 1);
    await transport.close();
    fromBrowser.end('2}\0{"id":3}\0');
    await once(fromBrowser, "close");
    expect(heard).toEqual([{ id: 1 }]);
  });

  test("endless dialogs end at the deadline too", async () => {
    await open("/alerts");
    expect((await tool.post("/click", { target: "text=Nag", timeout_ms: 700 })).status).toBe(504);
    await works();
  });

  test("a server that never answers costs the deadline and no more", async () => {
    const slow = await open("/slow", { timeout_ms: 500 });
    expect(slow.status).toBe(504);
    await works();
  });

  test("file: and link-local addresses are blocked, through redirects and from within the page", async () => {
    for (const url of [
      "file:///etc/passwd",
      "http://169.254.169.254/",
      "http://0xA9FEA9FE/",
      "http://[fe80::1]/",
      "chrome://version",
      "view-source:file:///etc/passwd",
      "http://metadata.google.internal./",
    ]) {
      const { status, body } = await tool.post("/navigate", { url });
      expect([url, status, body.error?.code]).toEqual([url, 403, "url_blocked"]);
    }
    for (const path of ["/to-file", "/to-metadata"]) {
      const { status, body } = await open(path, { timeout_ms: 5_000 });
      const isEnded = path === "/to-file" && engine.lacks("refusal of redirects to files");
      const [wantedStatus, code] = isEnded ? [409, "page_crashed"] : [403, "url_blocked"];
      expect([path, status, body.error?.code]).toEqual([path, wantedStatus, code]);
    }
    await open("/goes-local");
    await tool.post("/click", { target: "#f" });
    expect(await tool.evaluate("location.href")).toBe(`${site.url}/goes-local`);
    await tool.post("/click", { target: "#i" });
    await until("the request is refused", async () => (await tool.evaluate("document.title")) === "refused");
    const moved = await tool.post("/click", { target: "#m" });
    expect(JSON.stringify(moved.body)).toContain("was blocked");
    expect(await tool.evaluate("document.body.innerText")).not.toContain("ami-id");
    await works();
  });

  test("the switches open what is blocked", async () => {
    const open = startTool({ engine, urlPolicy: { allowFile: true, allowLinkLocal: true } });
    try {
      const { status } = await open.post("/navigate", { url: "file:///etc/hostname" });
      expect(status).toBe(200);
    } finally {
      await open.stop();
    }
  });

  test("failed, empty and hash navigations say what happened", async () => {
    expect((await open("/status")).body.status).toBe(410);
    const refused = await tool.post("/navigate", { url: "http://127.0.0.1:9/" });
    expect([refused.status, refused.body.error.code]).toEqual([502, "navigation_failed"]);
    await open("/to-nothing");
    expect((await tool.post("/click", { target: "a" })).body).toMatchObject({
      title: "Stays",
      navigated: false,
    });
    await open("/hash");
    const hash = await tool.post("/click", { target: "a" });
    expect(hash.body).toMatchObject({ url: `${site.url}/hash#part`, navigated: false });
    expect((await tool.post("/navigate", { url: `${site.url}/hash#other` })).status).toBe(200);
    expect((await tool.post("/navigate", { url: "http://exa mple/" })).status).toBe(400);
  });

  test("a download is saved and reported", async () => {
    await open("/has-file");
    const clicked = await tool.post("/click", { target: "a" });
    let report = texts(clicked.body);
    await until("the download is complete", async () => {
      report += texts((await tool.post("/evaluate", { expression: "1" })).body);
      return report.includes("was downloaded");
    });
    const path = /to (\S+?)\.?$/m.exec(report)?.[1] ?? "";
    expect(existsSync(path)).toBe(true);
    expect(readFileSync(path, "utf8")).toBe("payload");
    expect((await open("/file.bin")).status).toBe(200);
    await works();
  });

  test("an address for another application does not block the page", async () => {
    await open("/calls");
    for (const target of ["#link", "#script", "#redirect", "#window", "#frame"]) {
      const clicked = await tool.post("/click", { target });
      let report = texts(clicked.body);
      await until(`${target} is reported`, async () => {
        report += texts((await tool.get("/pages")).body);
        return report.includes("Another application was asked to open");
      });
      await tool.post("/click", { target: "#alive" });
      expect([target, await tool.evaluate("document.title")]).toEqual([target, "Alive"]);
      await open("/calls");
    }
    await works();
  });

  test.skipIf(engine.lacks("windows of the browser"))(
    "a passkey or a screen to share does not swallow clicks in silence",
    async () => {
      const local = site.url.replace("127.0.0.1", "localhost");
      await tool.post("/navigate", { url: `${local}/asks` });
      await tool.post("/click", { target: "#passkey" });
      await tool.post("/click", { target: "#alive" });
      expect(await tool.evaluate("document.title")).toBe("Alive");
      await tool.post("/navigate", { url: `${local}/asks` });
      await tool.post("/click", { target: "#screen" });
      await until("the browser asks for a screen", async () => {
        const { body } = await tool.post("/click", { target: "#alive" });
        return body.error?.message.includes("a window of its own") === true;
      });
      await works();
    },
  );

  test("a browser that dies is started again at the next call", async () => {
    await works();
    const browser = await tool.session.browser();
    browser.connection.root.send("Browser.crash").catch(() => {});
    await until("the browser is gone", () => browser.connection.closedReason !== null);
    await works();
  });
});
