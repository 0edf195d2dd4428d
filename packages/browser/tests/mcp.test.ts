import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite } from "./helpers.ts";
import { McpClient } from "./mcp-client.ts";

const table = (rows: number) =>
  `<title>Table</title><table><tr><th>Order</th><th>Paid</th><th>Sum</th></tr>${Array.from({ length: rows }, (_, i) => `<tr><td>No. ${i}</td><td><button>Pay ${i}</button></td><td>${i} EUR</td></tr>`).join("")}</table>`;

const list = (items: number) =>
  `<title>List</title><ul>${"<li><a href='/x'>An item with some text in it</a></li>".repeat(items)}</ul>`;

onEachEngine("the MCP server", (engine) => {
  let client: McpClient;
  let site: Site;
  beforeAll(async () => {
    site = startSite({
      "/": `<title>Start</title><h1>Start</h1><label>Name <input></label><button onclick="document.title='Clicked'">Go</button>
        <a href="/next">Next</a><button onclick="alert('boo')">Alert</button><script>console.error('broken');0</script>`,
      "/form": `<title>Form</title><form action="/refused"><input name="who" required><button>Send</button></form>`,
      "/refused": () => new Response("no", { status: 403, headers: { "content-type": "text/html" } }),
      "/next": `<title>Next page</title><p>next</p>`,
      "/popup": `<title>Popup</title><p>in the popup</p>`,
      "/opener": `<title>Opener</title><a href="/popup" target="_blank">Open</a>${"<button>Same</button>".repeat(3)}`,
      "/frames": `<title>Frames</title>${'<iframe src="/part"></iframe>'.repeat(3)}`,
      "/table": table(20),
      "/ledger": table(2_000),
      "/list": list(3_000),
      "/part": list(500),
    });
    client = new McpClient([], engine.env);
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

  test("lists twelve tools in less than 6.5 KB", async () => {
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
    expect(JSON.stringify(result).length).toBeLessThan(6_500);
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

  test("says why a form was not sent, and with which status a page came", async () => {
    await client.call("browser_navigate", { url: `${site.url}/form` });
    const refused = await client.call("browser_click", { target: "text=Send" });
    expect(refused.text).toMatch(/### Events\n- A field is not valid: textbox "who" .*fill out/i);
    const sent = await client.call("browser_type", { target: "[name=who]", text: "me", submit: true });
    expect(sent.text).toContain("- HTTP status: 403");
  });

  test("of a page that is too large the beginning comes along, and how to go on", async () => {
    const { text } = await client.call("browser_navigate", { url: `${site.url}/list` });
    expect(text.length).toBeLessThan(6_000);
    expect(text).toMatch(/more not shown, see browser_snapshot/);
    const [, target, offset] = /target\W+(e\d+)\W+offset\W+(\d+)/.exec(text)!;
    const more = await client.call("browser_snapshot", { target, offset: Number(offset) });
    expect(more.text).toContain("An item with some text in it");
  });

  test("a table that comes along has a line for each row; twenty are whole, of 2,000 it is the head and the number", async () => {
    const small = (await client.call("browser_navigate", { url: `${site.url}/table` })).text;
    expect(small).toMatch(/row "Order \| Paid \| Sum" \[ref=e\d+\]\n/);
    expect(small).toMatch(/row "No\. 19 \| … \| 19 EUR" \[ref=e\d+\]:\n\s+- button "Pay 19" \[ref=e\d+\]\n/);
    expect(small.length).toBeLessThan(2_500);
    const { text } = await client.call("browser_navigate", { url: `${site.url}/ledger` });
    expect(text).toMatch(/No\. 8[\s\S]*\d+ more not shown, see browser_snapshot/);
    expect(text.length).toBeLessThan(2_000);
    const found = await client.call("browser_snapshot", { find: "Pay 1777" });
    expect(found.text).toContain('cell "1777 EUR"');
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

  test("what was left out of a result can be asked for, in frames too", async () => {
    for (const path of ["/list", "/frames"]) {
      const opened = await client.call("browser_navigate", { url: site.url + path });
      const asked = await client.call("browser_snapshot");
      for (const { text } of [opened, asked]) {
        expect(text).not.toContain("… cut");
        expect(text.trimEnd()).toEndWith("```");
        const [, target, offset] =
          /\/more: "\d+ more not shown, see browser_snapshot {\\"target\\":\\"(\w+)\\",\\"offset\\":(\d+)/.exec(
            text,
          )!;
        const more = await client.call("browser_snapshot", { ref: target, offset: Number(offset) });
        expect(more.text).toContain(`[ref=${target}]`);
        expect(more.text).toContain("An item with some text");
        expect(more.text).not.toContain("- iframe");
      }
    }
  });

  test("takes ref for target in every tool", async () => {
    await client.call("browser_navigate", { url: site.url });
    expect((await client.call("browser_dom", { ref: "h1" })).text).toBe("### Result\n<h1>Start</h1>");
    expect((await client.call("browser_snapshot", { ref: "h1" })).text).not.toContain("textbox");
  });

  test("shows the page that a click opened, and says when a target was not the only one", async () => {
    await client.call("browser_navigate", { url: `${site.url}/opener` });
    const several = await client.call("browser_click", { target: "button" });
    expect(several.text).toContain("The target matched 3 elements");
    const { text } = await client.call("browser_click", { target: "a" });
    expect(text).toContain(`- Page URL: ${site.url}/popup`);
    expect(text).toContain("in the popup");
    expect(text).toContain(`now the active one: ${site.url}/popup`);
    await client.call("browser_navigate_back");
  });

  test("a long value is cut with a hint, and what happened by itself is said all the same", async () => {
    await client.call("browser_navigate", { url: site.url });
    const { text } = await client.call("browser_evaluate", {
      function: "() => { alert('meanwhile'); return 'x'.repeat(100_000) }",
    });
    expect(text).toContain("100002 characters in all; return less");
    expect(text).toEndWith('### Events\n- alert dialog "meanwhile" was accepted');
    const moved = await client.call("browser_evaluate", { function: "() => { location.href = '/next' }" });
    expect(moved.text).toContain("- Page Title: Next page");
  });

  test("speaks the 2026 protocol, without a handshake", async () => {
    const modern = new McpClient([], engine.env);
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
