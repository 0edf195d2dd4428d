import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Site, startSite } from "./helpers.ts";
import { McpClient } from "./mcp-client.ts";

describe("the MCP server", () => {
  let client: McpClient;
  let site: Site;
  beforeAll(async () => {
    site = startSite({
      "/": `<title>Start</title><h1>Start</h1><label>Name <input></label><button onclick="document.title='Clicked'">Go</button>
        <a href="/next">Next</a><button onclick="alert('boo')">Alert</button><script>console.error('broken')</script>`,
      "/next": `<title>Next page</title><p>next</p>`,
      "/list": `<title>List</title><ul>${"<li><a href='/x'>An item with some text in it</a></li>".repeat(3_000)}</ul>`,
    });
    client = new McpClient();
    await client.initialize();
  });
  afterAll(async () => {
    await client.end();
    await site.stop();
  });

  const ref = (text: string, needle: string) => {
    const line = text.split("\n").find((each) => each.includes(needle));
    return /\[ref=(\w+)\]/.exec(line ?? "")![1]!;
  };

  test("lists twelve tools in less than 6 KB", async () => {
    const { result } = await client.send("tools/list");
    expect(result.tools.map(({ name }: { name: string }) => name).toSorted()).toEqual([
      "browser_click",
      "browser_console_messages",
      "browser_dom",
      "browser_evaluate",
      "browser_navigate",
      "browser_navigate_back",
      "browser_navigate_forward",
      "browser_press_key",
      "browser_resize",
      "browser_screenshot",
      "browser_snapshot",
      "browser_type",
    ]);
    expect(JSON.stringify(result).length).toBeLessThan(6_000);
  });

  test("answers calls made at once in their order", async () => {
    const [, , said] = await Promise.all([
      client.call("browser_navigate", { url: site.url }),
      client.call("browser_evaluate", { function: "() => console.warn('after the load')" }),
      client.call("browser_console_messages"),
    ]);
    expect(said.text).toContain("after the load");
  });

  test("drives a page with ref and with target", async () => {
    const opened = await client.call("browser_navigate", { url: site.url });
    expect(opened.text).toStartWith(
      `### Page\n- Page URL: ${site.url}/\n- Page Title: Start\n- Console: 1 errors, 0 warnings\n### Snapshot\n\`\`\`yaml\n`,
    );
    const go = ref(opened.text, 'button "Go"');
    expect((await client.call("browser_click", { element: "Go", ref: go })).text).toContain(
      "- Page Title: Clicked",
    );
    const name = ref(opened.text, "textbox");
    await client.call("browser_type", { element: "Name", target: name, text: "Ann" });
    expect((await client.call("browser_evaluate", { function: "(e) => e.value", ref: name })).text).toBe(
      '### Result\n"Ann"',
    );
    expect((await client.call("browser_snapshot")).text).toContain('textbox "Name" [active]');
    await client.call("browser_press_key", { key: "Control+a" });
    await client.call("browser_press_key", { key: "Delete" });
    expect(
      (await client.call("browser_evaluate", { function: "() => document.querySelector('input').value" }))
        .text,
    ).toBe('### Result\n""');
    const moved = await client.call("browser_click", { target: ref(opened.text, 'link "Next"') });
    expect(moved.text).toContain("- Page Title: Next page");
    expect(moved.text).toContain("paragraph");
    expect((await client.call("browser_navigate_back")).text).toContain(`- Page URL: ${site.url}/\n`);
    expect((await client.call("browser_navigate_forward")).text).toContain("- Page Title: Next page");
    expect((await client.call("browser_dom", { target: "p" })).text).toBe("### Result\n<p>next</p>");
    expect((await client.call("browser_resize", { width: 600, height: 500 })).isError).toBe(false);
    for (const name of ["browser_screenshot", "browser_take_screenshot"]) {
      const picture = await client.call(name, { fullPage: true });
      expect(picture.content[1]).toMatchObject({ type: "image", mimeType: "image/png" });
    }
  });

  test("reports events and console messages in their sections", async () => {
    await client.call("browser_navigate", { url: site.url });
    const alerted = await client.call("browser_click", { target: "text=Alert" });
    expect(alerted.text).toContain('### Events\n- alert dialog "boo" was accepted');
    const log = await client.call("browser_console_messages");
    expect(log.text).toMatch(
      /### Result\nTotal messages: 1 \(Errors: 1, Warnings: 0\)\n\[ERROR\] broken @ http:\/\/127\.0\.0\.1:\d+\/:2/,
    );
    expect((await client.call("browser_console_messages", { all: true, level: "error" })).text).toContain(
      "broken",
    );
  });

  test("answers mistakes with results that say what to do", async () => {
    const missing = await client.call("browser_click", {});
    expect([missing.isError, missing.text]).toEqual([
      true,
      expect.stringMatching(/^### Error\nInvalid arguments for tool "browser_click": target: /),
    ]);
    const stale = await client.call("browser_click", { target: "e99999" });
    expect(stale.text).toBe(
      "### Error\nRef e99999 not found in the current page snapshot. Try capturing new snapshot.",
    );
    expect((await client.call("browser_navigate", { url: "file:///etc/passwd" })).text).toContain(
      "--allow-file",
    );
    expect((await client.call("browser_fly")).isError).toBe(true);
    expect((await client.call("browser_evaluate", { function: "() => x.y" })).text).toContain(
      "ReferenceError",
    );
  });

  test("no result exceeds the budget", async () => {
    for (const [name, args] of [
      ["browser_navigate", { url: `${site.url}/list` }],
      ["browser_snapshot", {}],
      ["browser_dom", {}],
      ["browser_evaluate", { function: "() => 'x'.repeat(1e6)" }],
    ] as const) {
      const { text } = await client.call(name, args);
      expect([name, text.length <= 24_000]).toEqual([name, true]);
    }
  });

  test("speaks the 2026 protocol, without a handshake", async () => {
    const modern = new McpClient();
    const _meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const discovered = await modern.send("server/discover", { _meta });
    expect(JSON.stringify(discovered.result)).toContain("2026-07-28");
    const { result } = await modern.send("tools/list", { _meta });
    expect(result.tools).toHaveLength(12);
    const opened = await modern.send("tools/call", {
      name: "browser_navigate",
      arguments: { url: site.url },
      _meta,
    });
    expect(opened.result.content[0].text).toContain("- Page Title: Start");
    await modern.end();
  });
});
