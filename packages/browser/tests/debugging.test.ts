/** What a coding agent reads when something is wrong: why a request failed, and where a message came from. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const pages = {
  "/": `<title>Orders</title><button onclick="send()">Send</button><p id="out"></p><script>
    async function send() { const r = await fetch('/api/orders', { method: 'POST', headers: { 'content-type': 'application/json', 'x-trace': 'abc' }, body: JSON.stringify({ amount: -1 }) });
      out.textContent = 'status ' + r.status }</script><script src="/missing.js"></script>`,
  "/other": "<title>Other</title>other",
  "/api/orders": () =>
    Response.json({ error: "amount must be positive" }, { status: 422, headers: { "x-rule": "R7" } }),
};

onEachEngine("debugging", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });
  const requests = async (filter: string) =>
    (await tool.get(`/a11y?network=${encodeURIComponent(filter)}`)).body as {
      network: string[];
      snapshot: string;
    };

  test("the reason of a refused request can be read, by its id", async () => {
    await tool.post("/navigate", { url: `${site.url}/other` });
    await tool.post("/navigate", { url: site.url });
    await tool.post("/click", { target: "text=Send" });
    const { network, snapshot } = await requests("4xx /api/");
    expect(snapshot).toBe("");
    expect(network).toHaveLength(1);
    expect(network[0]).toMatch(/^r\d+ POST .*\/api\/orders 422 fetch \d+ ms$/);
    const details = (await requests(network[0]!.split(" ")[0]!)).network.join("\n");
    expect(details).toContain("x-rule: R7");
    if (!engine.lacks("bodies of requests")) expect(details).toContain('{"amount":-1}');
    if (!engine.lacks("bodies of fetched answers")) expect(details).toContain("amount must be positive");
    if (engine.name === "chromium") expect(details).toMatch(/began by: send @ http.*:\d+/);
  });

  test("the list is of the current document, unless all is asked for", async () => {
    await tool.post("/navigate", { url: `${site.url}/other` });
    await tool.post("/navigate", { url: site.url });
    const own = (await requests("")).network.join("\n");
    expect(own).toContain("/missing.js 404 ");
    expect(own).not.toContain("/other");
    expect((await requests("all")).network.join("\n")).toContain("/other");
  });
});
