import { afterAll, beforeAll, expect, test } from "bun:test";
import { isLinkLocalHost, whyHostBlocked } from "../src/policy/url-policy.ts";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

test.each([
  ["169.254.169.254", true],
  ["169.254.0.1", true],
  ["fe80::1", true],
  ["fe80::1%eth0", true],
  ["[fe80::1]", true],
  ["::ffff:169.254.169.254", true],
  ["::ffff:a9fe:a9fe", true],
  ["0:0:0:0:0:ffff:a9fe:a9fe", true],
  ["::ffff:0:a9fe:a9fe", true],
  ["::a9fe:a9fe", true],
  ["64:ff9b::a9fe:a9fe", true],
  ["2002:a9fe:a9fe::", true],
  ["fd00:ec2::254", true],
  ["[FD00:EC2:0::254]", true],
  ["::ffff:100.100.100.200", true],
  ["metadata.google.internal.", true],
  ["127.0.0.1", false],
  ["::1", false],
  ["10.1.2.3", false],
  ["fd12::1", false],
  ["2001:db8::a9fe:a9fe", false],
  ["169.254.example.com", false],
] as const)("%s is link-local or metadata: %p", (host, expected) => {
  expect(isLinkLocalHost(host)).toBe(expected);
});

test.each(["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "0:0:0:0:0:ffff:7f00:1"])(
  "%s is blocked with 127.0.0.1",
  (host) => {
    const lists = { allowFile: false, allowLinkLocal: false, blockHosts: ["127.0.0.1"] };
    expect(whyHostBlocked(host, lists)).toContain("127.0.0.1 is blocked");
  },
);

onEachEngine("a name that changes its address", (engine) => {
  let tool: Tool;
  let site: Site;
  let metadata: Site;
  /** What the names resolve to now. */
  const answers: Record<string, string[]> = {};
  const asked: string[] = [];

  beforeAll(() => {
    metadata = startSite({
      "/": () => new Response("secret", { headers: { "access-control-allow-origin": "*" } }),
    });
    site = startSite({
      "/": `<title>Rebind</title><script>
        const out = {}
        const tell = (name) => (value) => { out[name] = String(value?.message ?? value?.type ?? value) }
        function attack(port) {
          const base = '//rebind.test:' + port + '/'
          fetch('http:' + base).then((r) => r.text()).then(tell('fetch'), tell('fetch'))
          const img = new Image(); img.onload = img.onerror = tell('image'); img.src = 'http:' + base
          const ws = new WebSocket('ws:' + base); ws.onopen = ws.onerror = tell('socket')
          const literal = new WebSocket('ws://169.254.169.254/'); literal.onopen = literal.onerror = tell('literal')
          const mapped = new WebSocket('ws://[::ffff:a9fe:a9fe]/'); mapped.onopen = mapped.onerror = tell('mapped')
          const source = "fetch('http:" + base + "').then((r) => r.text()).then(postMessage, (e) => postMessage(e.message))"
          const worker = new Worker(URL.createObjectURL(new Blob([source]))); worker.onmessage = (e) => tell('worker')(e.data)
        }
      </script>`,
    });
    tool = startTool({
      engine,
      resolveHost: async (host) => {
        asked.push(host);
        const found = answers[host];
        if (!found) throw new Error("unknown");
        return found;
      },
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
    await metadata.stop();
  });

  const told = (body: { events?: { text: string }[] }) =>
    (body.events ?? []).map(({ text }) => text).join("\n");

  test("is followed as long as it is an open one, and blocked for every kind of request once it is not", async () => {
    answers["rebind.test"] = ["127.0.0.1"];
    const opened = await tool.post("/navigate", { url: `http://rebind.test:${site.port}/` });
    expect([opened.status, opened.body.title]).toEqual([200, "Rebind"]);
    expect(asked).toContain("rebind.test");
    expect(await tool.evaluate(`fetch('http://rebind.test:${metadata.port}/').then((r) => r.text())`)).toBe(
      "secret",
    );

    // Another port, because an open connection stays with the address that it was made to.
    answers["rebind.test"] = ["169.254.169.254"];
    const other = startSite({ "/": "secret" });
    await tool.evaluate(`attack(${other.port})`);
    let events = "";
    await until("all of them have ended", async () => {
      const { body } = await tool.post("/evaluate", { expression: "Object.keys(out).length" });
      events += told(body);
      return body.value === 6;
    });
    const failed = engine.name === "chromium" ? "Failed to fetch" : "Load failed";
    expect(await tool.evaluate("out")).toEqual({
      fetch: failed,
      image: "error",
      socket: "error",
      literal: "error",
      mapped: "error",
      worker: failed,
    });
    expect(events).toContain("rebind.test is 169.254.169.254, a link-local or metadata address");
    const { body } = await tool.get("/network");
    const request = body.requests.find(({ url }: { url: string }) => url.includes(`:${other.port}/`));
    expect(request.error).toContain("blocked");
    await other.stop();
  });

  test("is not opened as a page either, and one that has both kinds of address is reached at the open one", async () => {
    answers["later.test"] = ["169.254.169.254"];
    const { status, body } = await tool.post("/navigate", { url: `http://later.test:${site.port}/` });
    expect([status, body.error.code]).toEqual([403, "url_blocked"]);
    answers["both.test"] = ["169.254.169.254", "fe80::1", "127.0.0.1"];
    const both = await tool.post("/navigate", { url: `http://both.test:${site.port}/` });
    expect([both.status, both.body.title]).toEqual([200, "Rebind"]);
  });

  test("one that was public is not followed to this machine or its network, whatever else it says", async () => {
    await tool.post("/navigate", { url: `${site.url}/` });
    const asks = () =>
      tool.evaluate(
        `fetch('http://public.test:${metadata.port}/', { signal: AbortSignal.timeout(300) }).then((r) => r.text(), (e) => 'failed')`,
      );
    for (const found of [
      ["203.0.113.7", "127.0.0.1"],
      ["127.0.0.1"],
      ["10.0.0.1", "::ffff:127.0.0.1", "::1", "0.0.0.0"],
    ]) {
      answers["public.test"] = found;
      expect(await asks()).toBe("failed");
    }
    const { status, body } = await tool.post("/navigate", { url: `http://public.test:${metadata.port}/` });
    expect([status, body.error.code, body.error.message]).toEqual([
      403,
      "url_blocked",
      expect.stringContaining("public.test is 10.0.0.1, an address of this network; it had a public one"),
    ]);
    answers["home.test"] = ["127.0.0.1"];
    expect((await tool.post("/navigate", { url: `http://home.test:${site.port}/` })).body.title).toBe(
      "Rebind",
    );
  });

  test("what fails on the way is said as the browser would say it", async () => {
    const unknown = await tool.post("/navigate", { url: "http://unknown.test/" });
    expect(unknown.body.error.message).toContain("NAME_NOT_RESOLVED. Check the host name.");
    answers["closed.test"] = ["127.0.0.1"];
    const gone = startSite({});
    await gone.stop();
    const closed = await tool.post("/navigate", { url: `http://closed.test:${gone.port}/` });
    expect(closed.body.error.message).toContain("CONNECTION_REFUSED. Nothing listens there");
  });
});
