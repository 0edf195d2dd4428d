import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway({ config: { registrationOpen: null } });
});
afterAll(() => gateway.stop());
const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}${path}`, { headers });

const AS_BROWSER = { accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" };

test("any page's address is the console, guarded by its policy", async () => {
  for (const path of ["/", "/keys", "/groups/1/credits"]) {
    const page = await get(path, AS_BROWSER);
    expect([path, page.status]).toEqual([path, 200]);
    expect(page.headers.get("content-type")).toContain("text/html");
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'; script-src 'self'");
    expect(page.headers.get("cache-control")).toBe("no-cache");
    expect(await page.text()).toContain('<div id="root">');
  }
});

test("an address that only the console could have is for those who ask for HTML; programs get a 404", async () => {
  for (const accept of [
    "*/*",
    "application/json",
    "text/*",
    "text/html;q=0",
    "text/htmlx",
    "text/html; q=0.0, */*",
  ]) {
    for (const path of ["/keys", "/chat/completions", "/models"]) {
      const answer = await get(path, { accept });
      expect([accept, path, answer.status]).toEqual([accept, path, 404]);
      expect(await answer.json()).toMatchObject({ error: { code: "not_found" } });
      expect(answer.headers.get("x-request-id")).not.toBeNull();
    }
    expect((await get("/", { accept })).headers.get("content-type")).toContain("text/html");
  }
  for (const accept of ["text/html", "TEXT/HTML;level=1, */*;q=0.1", "*/*, application/xhtml+xml"])
    expect([accept, (await get("/keys", { accept })).status]).toEqual([accept, 200]);
  expect((await get("/gone.js", AS_BROWSER)).status).toBe(404);
});

test("its files are compressed, cached for good by their content, and small enough", async () => {
  const html = await (await get("/")).text();
  const script = /src="(\/assets\/[^"]+\.js)"/.exec(html)?.[1] ?? "";
  const plain = await get(script, { "accept-encoding": "identity" });
  expect(plain.headers.get("cache-control")).toContain("immutable");
  expect(plain.headers.get("content-encoding")).toBeNull();
  const packed = await fetch(`${gateway.url}${script}`, {
    decompress: false,
    headers: { "accept-encoding": "gzip" },
  });
  expect(packed.headers.get("content-encoding")).toBe("gzip");
  const bytes = new Uint8Array(await packed.arrayBuffer());
  expect(bytes.length).toBeLessThan(300 * 1024);
  expect(Bun.gunzipSync(bytes)).toEqual(new Uint8Array(await plain.arrayBuffer()));
  const again = await get(script, { "if-none-match": plain.headers.get("etag") ?? "" });
  expect(again.status).toBe(304);
});

test("what is not the console's stays an error of its surface", async () => {
  for (const path of ["/api/nothing", "/v1/nothing"]) {
    const answer = await get(path);
    expect([path, answer.status]).toEqual([path, 404]);
    expect(await answer.json()).toHaveProperty("error.code", "not_found");
  }
  expect((await get("/assets/gone-12345678.js")).status).toBe(404);
  expect(await (await get("/../package.json")).text()).not.toContain("workspaces");
});

test("the documentation is Markdown, with a table of contents", async () => {
  const contents = await (await get("/llms.txt")).text();
  const paths = [...contents.matchAll(/\]\((\/docs\/[^)]+)\)/g)].map(([, path]) => path!);
  expect(paths).toContain("/docs/quick-start.md");
  for (const path of paths) {
    const page = await get(path);
    expect([path, page.headers.get("content-type")]).toEqual([path, "text/markdown; charset=utf-8"]);
    expect(await page.text()).toStartWith("# ");
  }
});

test("the entrance learns whether this is the first run", async () => {
  const setup = async () => (await get("/api/setup")).json();
  expect(await setup()).toEqual({
    registration_open: true,
    first_run: true,
    setup_link_needed: false,
    password_sign_in: true,
    provider: null,
  });
  await gateway.signIn("first");
  expect(await setup()).toEqual({
    registration_open: false,
    first_run: false,
    setup_link_needed: false,
    password_sign_in: true,
    provider: null,
  });
});
