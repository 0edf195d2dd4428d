/** Profiles and states that stay, a browser that runs already, hosts that may be reached, and what is left when the guard is gone. */
import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { chromiumPath, startSite, startTool, until } from "./helpers.ts";

describe("a profile that stays", () => {
  test("keeps cookies and storage, and is not used twice at once", async () => {
    const profileDir = join(mkdtempSync(join(tmpdir(), "profile-")), "mine");
    const site = startSite({
      "/in": () =>
        new Response("<title>In</title><script>localStorage.seen = 'yes'</script>", {
          headers: { "content-type": "text/html", "set-cookie": "signed=in; Max-Age=3600" },
        }),
      "/": (request) =>
        new Response(`<p>${request.headers.get("cookie")}</p>`, { headers: { "content-type": "text/html" } }),
    });
    try {
      const first = startTool({ profileDir });
      await first.post("/navigate", { url: `${site.url}/in` });
      const second = startTool({ profileDir });
      const { status, body } = await second.get("/a11y");
      expect([status, body.error.message]).toEqual([
        503,
        expect.stringContaining("is in use by another browser-tool"),
      ]);
      await second.stop();
      await first.stop();
      const again = startTool({ profileDir });
      await again.post("/navigate", { url: site.url });
      expect(await again.snapshot()).toContain("signed=in");
      expect(await again.evaluate("localStorage.seen")).toBe("yes");
      await again.stop();
      expect(existsSync(profileDir)).toBe(true);
    } finally {
      await site.stop();
      rmSync(profileDir, { recursive: true, force: true });
    }
  }, 60_000);
});

/** Signs in with a cookie and in local storage, and shows both. */
const signedIn = {
  "/in": () =>
    new Response("<title>In</title><script>localStorage.seen = 'the stored word'</script>", {
      headers: { "content-type": "text/html", "set-cookie": "signed=in; Max-Age=3600" },
    }),
  "/": "<title>Home</title><p></p><script>document.querySelector('p').textContent = document.cookie + ' ' + localStorage.seen</script>",
};

describe("a state in a file", () => {
  test("is kept at the end and there at the next start, in named sessions too, and only with its key", async () => {
    const path = join(mkdtempSync(join(tmpdir(), "state-")), "state.json");
    const site = startSite(signedIn);
    const state = { path, key: "a key" };
    try {
      // Without a key it is there to be read.
      const signIn = async (file: typeof state | { path: string; key: null }) => {
        const tool = startTool({ state: file });
        await tool.post("/navigate", { url: `${site.url}/in` });
        await tool.stop();
      };
      await Promise.all([signIn(state), signIn({ path: `${path}.open`, key: null })]);
      expect(JSON.parse(readFileSync(`${path}.open`, "utf8"))).toMatchObject({
        cookies: [{ name: "signed", value: "in" }],
        storage: { [site.url]: { seen: "the stored word" } },
      });
      const kept = readFileSync(path, "utf8");
      expect(kept).not.toMatch(/signed|stored word/);
      expect(statSync(path).mode & 0o777).toBe(0o600);
      // Of a browser that has opened nothing, what was kept stays.
      const idle = startTool({ state });
      await idle.get("/a11y");
      await idle.stop();
      const again = startTool({ state });
      for (const session of [undefined, "ann"]) {
        await again.post("/navigate", { url: site.url, session });
        expect(await again.snapshot(session ? "?session=ann" : "")).toContain("signed=in the stored word");
      }
      expect((await again.get("/pages")).body.pages).toHaveLength(1);
      await again.stop();
      for (const [key, why] of [
        ["another", "is not the one"],
        [null, "is encrypted"],
      ] as const) {
        const refused = startTool({ state: { path, key } });
        const { status, body } = await refused.get("/a11y");
        expect([status, body.error.message]).toEqual([503, expect.stringContaining(why)]);
        await refused.stop();
      }
    } finally {
      await site.stop();
      rmSync(dirname(path), { recursive: true, force: true });
    }
  }, 60_000);
});

test("a browser that runs already is used and left as it was", async () => {
  const dir = mkdtempSync(join(tmpdir(), "attach-"));
  const site = startSite({
    ...signedIn,
    "/inner": "inside the frame",
    "/mine": "<title>Mine</title><h1>My own tab</h1><iframe src='/inner'></iframe>",
  });
  const flags = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", `--user-data-dir=${dir}`];
  const child = Bun.spawn([chromiumPath, ...flags, `${site.url}/mine`], {
    stderr: "ignore",
    stdout: "ignore",
  });
  try {
    const portFile = join(dir, "DevToolsActivePort");
    await until("the port", () => existsSync(portFile) && readFileSync(portFile, "utf8").includes("/"));
    const attachUrl = `http://127.0.0.1:${readFileSync(portFile, "utf8").split("\n")[0]}`;
    const tabs = async () =>
      ((await (await fetch(`${attachUrl}/json/list`)).json()) as { type: string; url: string }[])
        .filter(({ type }) => type === "page")
        .map(({ url }) => url);
    const tool = startTool({ attachUrl });
    const opened = await tool.post("/navigate", { url: `${site.url}/in` });
    expect(opened.body).toMatchObject({ title: "In" });
    expect((await tool.get("/info")).body).toMatchObject({ source: "attached" });
    expect((await tool.get("/pages")).body.pages).toHaveLength(1);
    await until("its own tab", async () => (await tabs()).includes(`${site.url}/mine`));
    expect(await tool.snapshot("?page=mine")).toContain("My own tab");
    expect(await tool.snapshot()).toContain("inside the frame");
    await tool.evaluate("window.open('/')");
    await until("the popup", async () => (await tool.get("/pages")).body.pages.length === 3);
    await tool.post("/navigate", { url: site.url, session: "apart" });
    expect(await tool.snapshot("?session=apart")).not.toContain("signed");
    await tool.stop();
    expect((await tabs()).toSorted()).toEqual([`${site.url}/`, `${site.url}/in`, `${site.url}/mine`]);
    const refused = startTool({ attachUrl, headful: true });
    expect((await refused.get("/a11y")).body.error.message).toContain("leave out --profile");
    await refused.stop();
    const nobody = startTool({ attachUrl: "http://127.0.0.1:1" });
    expect((await nobody.get("/a11y")).body.error.message).toContain("--remote-debugging-port=9222");
    await nobody.stop();
  } finally {
    child.kill();
    await child.exited;
    await site.stop();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  }
}, 60_000);

describe("the hosts that may be reached", () => {
  /** A hostile page that tries every way out that it has. */
  const attack = (port: number, udpPort: number) => `<title>Attack</title><script>
    const tried = [];
    const evil = ['http://evil.test:${port}', 'http://127.0.0.1:${port}', 'http://localhost:${port}', 'http://[::1]:${port}', 'http://sub.evil.test:${port}'];
    const work = "onmessage = async ({ data }) => { for (const base of data) await fetch(base + '/worker', { mode: 'no-cors' }).catch(() => {}); postMessage('done') }";
    async function run() {
      for (const base of evil) {
        await fetch(base + '/fetch', { mode: 'no-cors' }).catch(() => {});
        await new Promise((done) => { const i = new Image(); i.onload = i.onerror = done; i.src = base + '/image' });
        await new Promise((done) => { const w = new WebSocket(base.replace('http', 'ws') + '/socket'); w.onerror = w.onopen = done });
        navigator.sendBeacon(base + '/beacon');
        document.body.append(Object.assign(document.createElement('iframe'), { src: base + '/frame' }));
        document.head.append(Object.assign(document.createElement('link'), { rel: 'preconnect', href: base }));
        document.head.append(Object.assign(document.createElement('script'), { src: base + '/script' }));
        document.head.append(Object.assign(document.createElement('link'), { rel: 'prefetch', href: base + '/prefetch' }));
        new EventSource(base + '/events');
        document.head.append(Object.assign(document.createElement('script'), { type: 'speculationrules', textContent: JSON.stringify({ prerender: [{ urls: [base + '/prerender'] }] }) }));
        const shared = "fetch('" + base + "/shared', { mode: 'no-cors' }).catch(() => {})";
        new SharedWorker(URL.createObjectURL(new Blob([shared])));
        open(base + '/popup', '_blank', 'noopener');
        const form = Object.assign(document.createElement('form'), { method: 'post', action: base + '/form', target: 'posted' });
        document.body.append(form, Object.assign(document.createElement('iframe'), { name: 'posted' }));
        form.submit();
        document.body.append(Object.assign(document.createElement('a'), { href: base + '/download', download: '', target: 'posted', id: 'take' }));
        take.click(); take.remove();
        document.body.append(Object.assign(document.createElement('a'), { href: '#', ping: base + '/ping', id: 'ping' }));
        ping.click(); ping.remove();
      }
      await navigator.serviceWorker?.register('/worker.js').catch(() => {});
      for (const port of [${port}, ${udpPort}])
        await Promise.race([new WebTransport('https://127.0.0.1:' + port + '/transport').ready.catch(() => {}), new Promise((done) => setTimeout(done, 500))]);
      const call = new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:${udpPort}' }] });
      call.createDataChannel('x');
      await call.setLocalDescription(await call.createOffer());
      await new Promise((done) => { call.onicegatheringstatechange = () => call.iceGatheringState === 'complete' && done(); setTimeout(done, 2000) });
      await fetch('/redirect').catch(() => {});
      await new Promise((done) => { const w = new Worker(URL.createObjectURL(new Blob([work]))); w.onmessage = done; w.onerror = done; w.postMessage(evil) });
      await fetch('/tried');
    }
    addEventListener('load', () => setTimeout(run, 0))</script><body>`;

  async function attacked(urlPolicy: { allowHosts?: string[]; blockHosts?: string[] }): Promise<string[]> {
    const reached: string[] = [];
    const calls = await Bun.udpSocket({ socket: { data: () => void reached.push("a call past the gate") } });
    const server: Bun.Server<undefined> = Bun.serve({
      port: 0,
      hostname: "0.0.0.0",
      fetch: (request): Response => {
        const { pathname } = new URL(request.url);
        const host = request.headers.get("host") ?? "";
        reached.push(`${host.replace(/:\d+$/, "")}${pathname}`);
        const evil = `http://evil.test:${server.port}`;
        if (pathname === "/worker.js")
          return new Response(`onfetch = () => {}; fetch('${evil}/service').catch(() => {})`, {
            headers: { "content-type": "text/javascript" },
          });
        if (pathname === "/redirect") return Response.redirect(`${evil}/redirected`);
        if (pathname !== "/") return new Response("reached");
        const headers = {
          "content-type": "text/html",
          "content-security-policy-report-only": `img-src 'none'; report-uri ${evil}/report`,
          link: `<${evil}/hint>; rel=preload; as=script`,
          refresh: `30; url=${evil}/refresh`,
        };
        return new Response(attack(server.port!, calls.port), { headers });
      },
    });
    const tool = startTool({
      urlPolicy: { allowFile: false, allowLinkLocal: false, ...urlPolicy },
      resolveHost: async () => ["127.0.0.1"],
    });
    try {
      const opened = await tool.post("/navigate", { url: `http://good.localhost:${server.port}/` });
      expect(opened.status).toBe(200);
      await until("all was tried", () => reached.includes("good.localhost/tried"), 60_000);
      const left = await tool.post("/navigate", { url: `http://evil.test:${server.port}/asked` });
      expect([left.status, left.body.error?.code]).toEqual([403, "url_blocked"]);
      await tool.evaluate(`location.href = 'http://evil.test:${server.port}/left'`).catch(() => {});
      await Bun.sleep(300);
    } finally {
      await tool.stop();
      await server.stop(true);
      calls.close();
    }
    return reached;
  }

  test("are those that were allowed, whatever a page tries", async () => {
    const reached = await attacked({ allowHosts: ["good.localhost", "*.good.localhost"] });
    expect(reached.filter((each) => !each.startsWith("good.localhost/"))).toEqual([]);
    expect(reached).toContain("good.localhost/redirect");
  }, 90_000);

  test("are not those that were blocked", async () => {
    const reached = await attacked({ blockHosts: ["evil.test", "*.evil.test"] });
    expect(reached.filter((each) => /evil.test|a call/.test(each))).toEqual([]);
    expect(reached).toContain("127.0.0.1/fetch");
  }, 90_000);
});

test.skipIf(process.platform !== "linux")(
  "without its guard the tool deletes the profile itself",
  async () => {
    const tool = startTool();
    await tool.get("/a11y");
    const guardPid = () =>
      readdirSync("/proc").find((pid) => {
        try {
          const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
          const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
          const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
          return line.includes("browser-tool-guard") && parent === process.pid;
        } catch {
          return false;
        }
      });
    const pid = guardPid()!;
    const profile = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").at(-2)!;
    const dir = profile.replace(/\/tmp$/, "");
    expect(existsSync(dir)).toBe(true);
    process.kill(Number(pid), "SIGKILL");
    await until("the guard's end", () => guardPid() === undefined);
    await tool.stop();
    expect(existsSync(dir)).toBe(false);
  },
);
