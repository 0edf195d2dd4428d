/** Secrets that are typed by their names: where they go, and where they never show up. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { callTool } from "../src/mcp/tools.ts";
import { Secrets } from "../src/policy/secrets.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const value = 'p&s "w<rd" 7';
const other = 'q&t "x<se" 8';

/** A page that passes on what it is given in every way that pages have. */
const form = (
  port: number,
) => `<title>Form</title><style>* { font: 16px monospace; caret-color: transparent }</style>
  <input id="user" aria-label="User"><input id="pass" type="password" aria-label="Password"><p id="echo"></p><p id="loud" style="text-transform: uppercase"></p><button id="named">b</button><a id="link">link</a>
  <iframe src="http://localhost:${port}/inner"></iframe><script>
  const tell = async (text) => {
    echo.textContent = loud.textContent = text;
    named.ariaLabel = "it's " + text;
    history.replaceState(null, '', '?' + text);
    document.title = text;
    link.href = '/?' + text;
    console.log('typed', text, { text });
    localStorage.typed = text;
    document.cookie = 'typed=' + encodeURIComponent(text);
    await fetch('/take?in=' + encodeURIComponent(text), { method: 'POST', body: new URLSearchParams({ text }) });
    await fetch('/take', { method: 'POST', body: JSON.stringify({ text }), headers: { authorization: 'Basic ' + btoa('ann:' + text) } });
  };
  user.oninput = () => tell(user.value)</script>`;

describe("secrets", () => {
  let tool: Tool;
  let site: Site;
  const taken: string[] = [];
  let pdf = Buffer.alloc(0);
  beforeAll(() => {
    const hosts = ["127.0.0.1"];
    tool = startTool({ secrets: new Secrets({ login: { value, hosts }, other: { value: other, hosts } }) });
    site = startSite({
      "/": () => new Response(form(site.port), { headers: { "content-type": "text/html" } }),
      "/pdf": () => new Response(pdf, { headers: { "content-type": "application/pdf" } }),
      "/inner": `<input aria-label="Inner">`,
      "/take": async (request) => {
        taken.push(await request.text());
        return new Response("taken");
      },
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });
  const leaks = (said: unknown) => {
    const text = JSON.stringify(said);
    const spellings = [
      value,
      encodeURIComponent(value),
      btoa(`ann:${value}`),
      value.slice(0, 6),
      value.toUpperCase().slice(0, 6),
      "w<rd",
      "%3Crd",
    ];
    return spellings
      .flatMap((each) => [each, JSON.stringify(each).slice(1, -1)])
      .filter((each) => text.includes(each));
  };

  test("reach the page, and show up in no result", async () => {
    await tool.post("/navigate", { url: site.url });
    const typed = await tool.post("/type", {
      fields: [
        { target: "#pass", text: "{{secret:login}}" },
        { target: "#user", text: "{{secret:login}}" },
      ],
    });
    expect([typed.status, typed.body.value, typed.body.title]).toEqual([
      200,
      "{{secret:login}}",
      "{{secret:login}}",
    ]);
    expect(typed.body.changes).toContain("{{secret:login}}");
    expect(JSON.parse(taken.find((each) => each.startsWith("{"))!)).toEqual({ text: value });
    const said: unknown[] = [typed.body];
    const paths = ["/a11y", "/dom", "/console", "/network", "/cookies", "/storage", "/pages", "/info"];
    for (const path of paths) said.push((await tool.get(path)).body);
    const { requests } = (await tool.get("/network")).body;
    for (const { id } of requests) {
      said.push((await tool.get(`/request?id=${id}`)).body);
      said.push(await callTool(tool.session, "browser_snapshot", { network: id }));
    }
    said.push(await tool.post("/evaluate", { expression: "[user.value, { [user.value]: pass.value }]" }));
    said.push(await tool.post("/evaluate", { expression: "JSON.stringify([user.value])" }));
    said.push(await tool.post("/evaluate", { expression: "throw new Error(user.value)" }));
    said.push(await callTool(tool.session, "browser_snapshot", {}));
    said.push(await callTool(tool.session, "browser_console_messages", {}));
    said.push(
      await tool.post("/batch", { steps: [{ op: "a11y" }, { op: "click", target: `text="${value}" x` }] }),
    );
    expect(said.map(leaks)).toEqual(said.map(() => []));
    expect(await tool.evaluate("pass.value.length")).toBe(value.length);
  }, 30_000);

  test("are typed as a whole though key by key was asked for", async () => {
    await tool.post("/navigate", { url: site.url });
    await tool.evaluate("window.parts = []; user.addEventListener('input', () => parts.push(user.value))");
    await tool.post("/type", { target: "#user", text: "{{secret:login}}", slowly: true });
    expect(await tool.evaluate("[parts.length, user.value.length]")).toEqual([1, value.length]);
  });

  test("are dots in pictures, also where the page shows them as text", async () => {
    const picture = async (name: string) => {
      await tool.post("/type", { target: "#user", text: `{{secret:${name}}}` });
      return (await tool.post("/screenshot")).body.data as string;
    };
    const first = await picture("login");
    expect(await picture("other")).toBe(first);
    await tool.post("/type", { target: "#user", text: "twelve chars" });
    expect((await tool.post("/screenshot")).body.data).not.toBe(first);
    expect(await tool.evaluate("user.style.cssText + echo.style.cssText")).toBe("");
  });

  test("are in no trace, and dots in a PDF; there are no videos", async () => {
    await tool.post("/navigate", { url: site.url });
    const typed = { target: "#user", text: "{{secret:login}}", trace: true };
    const { file } = (await tool.post("/type", typed)).body.trace;
    const reloaded = (await tool.post("/navigate", { url: `${site.url}?again`, trace: true })).body.trace;
    for (const path of [file, reloaded.file]) {
      const trace = readFileSync(path, "utf8");
      expect(JSON.parse(trace).traceEvents.length).toBeGreaterThan(50);
      expect(leaks(trace)).toEqual([]);
    }
    await tool.post("/type", typed);
    const { content } = await callTool(tool.session, "browser_screenshot", { type: "pdf" });
    pdf = readFileSync(/Written to (.*)/.exec((content[0] as { text: string }).text)![1]!);
    expect(leaks(pdf.toString("latin1"))).toEqual([]);
    // This one does not know the secret, so it would show it.
    const reader = startTool();
    try {
      await reader.post("/navigate", { url: `${site.url}/pdf` });
      const shown = await reader.snapshot();
      expect(shown).toContain("•".repeat(value.length));
      expect(leaks(shown)).toEqual([]);
    } finally {
      await reader.stop();
    }
    const video = await callTool(tool.session, "browser_screenshot", { type: "video" });
    expect([video.isError, JSON.stringify(video.content)]).toEqual([
      true,
      expect.stringContaining("secrets"),
    ]);
  }, 30_000);

  test("are typed on their own hosts only", async () => {
    const inner = await tool.ref('textbox "Inner"');
    for (const target of [inner, "[aria-label=Inner]"]) {
      const { status, body } = await tool.post("/type", { target, text: "x{{secret:login}}" });
      expect([status, body.error.message]).toEqual([
        403,
        expect.stringContaining("is not for http://localhost"),
      ]);
    }
    await tool.post("/navigate", { url: site.url.replace("127.0.0.1", "localhost") });
    expect((await tool.post("/type", { target: "#user", text: "{{secret:login}}" })).status).toBe(403);
    expect(await tool.evaluate("user.value")).toBe("");
    const unknown = await tool.post("/type", { target: "#user", text: "{{secret:none}}" });
    expect(unknown.body.error.message).toBe('There is no secret "none"; there are: login, other.');
  });
});
