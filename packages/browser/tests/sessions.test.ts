/** Profiles that stay, hosts that may be reached, and what is left when the guard is gone. */
import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startSite, startTool, until } from "./helpers.ts";

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

describe("the hosts that may be reached", () => {
  /** A hostile page that tries every way out that it has. */
  const attack = (port: number) => `<title>Attack</title><script>
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
      }
      await fetch('/redirect').catch(() => {});
      await new Promise((done) => { const w = new Worker(URL.createObjectURL(new Blob([work]))); w.onmessage = done; w.onerror = done; w.postMessage(evil) });
      document.body.append('all tried');
    }
    addEventListener('load', () => setTimeout(run, 0))</script><body>`;

  async function attacked(urlPolicy: { allowHosts?: string[]; blockHosts?: string[] }): Promise<string[]> {
    const reached: string[] = [];
    const server: Bun.Server<undefined> = Bun.serve({
      port: 0,
      hostname: "0.0.0.0",
      fetch: (request): Response => {
        const { pathname } = new URL(request.url);
        const host = request.headers.get("host") ?? "";
        reached.push(`${host.replace(/:\d+$/, "")}${pathname}`);
        if (pathname === "/redirect") return Response.redirect(`http://evil.test:${server.port}/redirected`);
        return new Response(attack(server.port!), { headers: { "content-type": "text/html" } });
      },
    });
    const tool = startTool({
      urlPolicy: { allowFile: false, allowLinkLocal: false, ...urlPolicy },
      resolveHost: async () => ["127.0.0.1"],
    });
    try {
      const opened = await tool.post("/navigate", { url: `http://good.test:${server.port}/` });
      expect(opened.status).toBe(200);
      await tool.post("/wait", { text: "all tried", timeout_ms: 40_000 });
      const left = await tool.post("/navigate", { url: `http://evil.test:${server.port}/asked` });
      expect([left.status, left.body.error?.code]).toEqual([403, "url_blocked"]);
      await tool.evaluate(`location.href = 'http://evil.test:${server.port}/left'`).catch(() => {});
      await Bun.sleep(300);
    } finally {
      await tool.stop();
      await server.stop(true);
    }
    return reached;
  }

  test("are those that were allowed, whatever a page tries", async () => {
    const reached = await attacked({ allowHosts: ["good.test", "*.good.test"] });
    expect(reached.filter((each) => !each.startsWith("good.test/"))).toEqual([]);
    expect(reached).toContain("good.test/redirect");
  }, 60_000);

  test("are not those that were blocked", async () => {
    const reached = await attacked({ blockHosts: ["evil.test", "*.evil.test"] });
    expect(reached.filter((each) => each.includes("evil.test"))).toEqual([]);
    expect(reached).toContain("127.0.0.1/fetch");
  }, 60_000);
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
