/** Named sessions: several browsers in one, none of which sees another. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { callTool } from "../src/mcp/tools.ts";
import { type Site, startSite, startTool, type Tool, until } from "./helpers.ts";

const page = (request: Request) =>
  new Response(
    `<title>${request.headers.get("cookie")}</title><script>console.error('of ' + document.cookie)</script>
      <a href="/file" download>Download</a><button onclick="window.open('/other')">Open</button>`,
    { headers: { "content-type": "text/html" } },
  );

describe("named sessions", () => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ sessionIdleMs: 60_000 });
    site = startSite({
      "/": page,
      "/set": (request) => {
        const cookie = `who=${new URL(request.url).searchParams.get("who")}; Max-Age=600`;
        return new Response(null, { status: 302, headers: { location: "/", "set-cookie": cookie } });
      },
      "/file": () =>
        new Response("kept", { headers: { "content-disposition": "attachment; filename=f.txt" } }),
      "/other": "<title>Other</title>",
    });
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });
  const call = async (name: string, input: Record<string, unknown>) => {
    const { content, isError } = await callTool(tool.session, name, input);
    return { text: (content[0] as { text: string }).text, isError };
  };

  test("have cookies, storage, tabs and logs of their own", async () => {
    const names = ["ann", "ben", undefined];
    const opened = await Promise.all(
      names.map((session) => call("browser_navigate", { url: `${site.url}/set?who=${session}`, session })),
    );
    expect(opened.map(({ text }) => /Title: (.*)/.exec(text)?.[1])).toEqual([
      "who=ann",
      "who=ben",
      "who=undefined",
    ]);
    await tool.post("/storage?session=ann", { local: { mine: "ann's" }, session: { of: "the tab" } });
    expect((await tool.get("/storage?session=ann")).body.session).toEqual({ of: "the tab" });
    expect((await tool.get("/storage?session=ben")).body.local).toEqual({});
    expect((await tool.get("/storage")).body.local).toEqual({});
    await call("browser_click", { target: "text=Open", session: "ann" });
    expect((await tool.get("/pages?session=ann")).body.pages).toHaveLength(2);
    for (const session of ["ben", ""]) {
      const query = session && `?session=${session}`;
      expect((await tool.get(`/pages${query}`)).body.pages).toHaveLength(1);
      const { body } = await tool.get(`/console${query}`);
      expect(body.messages.map(({ text }: { text: string }) => text)).toEqual([
        `of who=${session || "undefined"}`,
      ]);
      const { requests } = (await tool.get(`/network${query}`)).body;
      expect(JSON.stringify(requests)).not.toContain("who=ann");
    }
    // The last tab makes way for a blank one, and the session stays.
    const closed = await call("browser_snapshot", { session: "ben", close: "page" });
    expect(closed.text).toContain("about:blank");
    await tool.delete("/cookies?session=ben");
    expect((await tool.get("/cookies?session=ben")).body.cookies).toEqual([]);
    expect((await tool.get("/cookies?session=ann")).body.cookies).toHaveLength(1);
    expect((await tool.get("/cookies")).body.cookies).toHaveLength(1);
  }, 60_000);

  test("are told of their own downloads, and do not wait for each other", async () => {
    await tool.post("/navigate", { url: site.url, session: "ben" });
    const slow = tool.post("/evaluate", {
      expression: "new Promise((done) => { self.finish = done })",
      session: "ann",
    });
    const told: string[] = [];
    const tells = async (path: string, body: object) => {
      const { events = [] } = (await tool.post(path, { ...body, session: "ben" })).body;
      told.push(...events.map(({ text }: { text: string }) => text));
      return told.some((text) => text.includes("f.txt was downloaded"));
    };
    await tells("/click", { target: "text=Download" });
    await until("the download", () => tells("/evaluate", { expression: "1" }));
    expect((await tool.post("/evaluate", { expression: "1" })).body.events).toBeUndefined();
    const page = await (await tool.session.named("ann").browser()).page();
    await page.session.send("Runtime.evaluate", { expression: "finish('done')" });
    expect((await slow).body).toMatchObject({ value: "done" });
  }, 60_000);

  test("are listed, ended by name, and begin anew", async () => {
    const { sessions } = (await tool.get("/sessions")).body;
    expect(sessions.map(({ session }: { session: string }) => session)).toEqual(["ann", "ben"]);
    expect((await call("browser_snapshot", { session: "ann", close: "session" })).text).toContain(
      "has ended",
    );
    expect((await tool.delete("/sessions?session=ben")).body).toEqual({ ended: "ben" });
    expect((await tool.get("/sessions")).body.sessions).toEqual([]);
    expect((await tool.get("/cookies?session=ann")).body.cookies).toEqual([]);
    expect((await tool.get("/cookies")).body.cookies).toHaveLength(1);
    for (const refused of [await tool.get("/pages?session=a%20b"), await tool.delete("/sessions")])
      expect([refused.status, refused.body.error.code]).toEqual([400, "invalid_request"]);
    expect((await call("browser_snapshot", { session: "a b" })).text).toContain("session: must be");
  });

  test("end when nobody has used them, which is told to whoever comes back", async () => {
    const session = tool.session.named("idle");
    await tool.get("/a11y?session=idle");
    session.lastUsedMs -= 61_000;
    await tool.get("/pages?session=other");
    expect(tool.session.sessions.map(({ name }) => name)).not.toContain("idle");
    expect((await tool.get("/a11y?session=idle")).body.events[0].text).toContain("had ended, being idle");
  });

  test("go with the browser, and come again with the next one", async () => {
    const browser = await tool.session.browser();
    await tool.get("/a11y?session=again");
    browser.connection.root.tell("Browser.close");
    await until("the browser's end", () => !tool.session.isStarted);
    const { status, body } = await tool.get("/a11y?session=again");
    expect([status, body.events[0].text]).toEqual([200, expect.stringContaining("ended between calls")]);
  }, 30_000);
});
