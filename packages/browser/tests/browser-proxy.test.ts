import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool } from "./helpers.ts";
import { startHttpProxy, startSocksProxy } from "./resolve/servers.ts";

/** A name that only the proxy can resolve, so a page that opens came through it. */
const hosts = { "site.invalid": "127.0.0.1" };

onEachEngine("the browser behind a proxy", (engine) => {
  let site: Site;
  beforeAll(() => {
    site = startSite({
      "/": "<title>Behind</title>there",
      "/login": ({ headers }) => {
        const login = headers.get("authorization");
        return new Response(`<title>${login ?? "Who?"}</title>`, {
          status: login ? 200 : 401,
          headers: { "content-type": "text/html", "www-authenticate": 'Basic realm="test"' },
        });
      },
    });
  });
  afterAll(() => site.stop());

  for (const [scheme, start] of [
    ["http", startHttpProxy],
    ["socks5", startSocksProxy],
  ] as const) {
    test(`a ${scheme} proxy is given its login`, async () => {
      const proxy = await start({ credentials: "me:s3c:ret", hosts });
      const tool = startTool({ engine, proxy: `${scheme}://me:s3c%3Aret@127.0.0.1:${proxy.port}` });
      try {
        const { status, body } = await tool.post("/navigate", { url: `http://site.invalid:${site.port}/` });
        expect([status, body.title]).toEqual([200, "Behind"]);
        expect(proxy.targets).toContain(`site.invalid:${site.port}`);
        const asked = await tool.post("/navigate", { url: `http://site.invalid:${site.port}/login` });
        expect([asked.status, asked.body.status, asked.body.title]).toEqual([200, 401, "Who?"]);
        const known = await tool.post("/navigate", { url: `http://a:b@site.invalid:${site.port}/login` });
        expect(known.body.title).toBe(`Basic ${btoa("a:b")}`);
      } finally {
        await tool.stop();
        await proxy.close();
      }
    });
  }

  test("the browser asks for nothing but the page", async () => {
    const proxy = await startHttpProxy({ hosts });
    const tool = startTool({ engine, proxy: `http://127.0.0.1:${proxy.port}` });
    try {
      await tool.post("/navigate", { url: `http://site.invalid:${site.port}/` });
      // What it used to ask by itself came within a second of the start.
      await tool.evaluate("new Promise((resolve) => setTimeout(resolve, 1500))");
      expect([...new Set(proxy.targets)]).toEqual([`site.invalid:${site.port}`]);
    } finally {
      await tool.stop();
      await proxy.close();
    }
  });

  test("a wrong login and a dead proxy are blamed on the proxy", async () => {
    const proxy = await startHttpProxy({ credentials: "me:right", hosts });
    const wrong = startTool({ engine, proxy: `http://me:wrong@127.0.0.1:${proxy.port}` });
    const dead = startTool({ engine, proxy: "http://127.0.0.1:1" });
    try {
      for (const tool of [wrong, dead]) {
        const { status, body } = await tool.post("/navigate", { url: `http://site.invalid:${site.port}/` });
        expect([status, body.error.code]).toEqual([502, "navigation_failed"]);
        expect(body.error.message).toContain("--proxy");
      }
    } finally {
      await Promise.all([wrong.stop(), dead.stop()]);
      await proxy.close();
    }
  });
});
