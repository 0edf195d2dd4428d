import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { startTool, type Tool } from "../helpers.ts";
import { McpClient } from "../mcp-client.ts";
import { type TempDir, tempDir } from "../resolve/support.ts";
import { compileEngine } from "./compile.ts";

let temp: TempDir;
let env: Record<string, string | undefined>;
beforeAll(() => {
  temp = tempDir();
  env = {
    ...process.env,
    BROWSER_BACKEND: "servo",
    BROWSER_SERVO_LIB: compileEngine(join(temp.path, "page.so")),
  };
});
afterAll(() => temp.remove());

describe("a page of an engine behind the C contract, over HTTP", () => {
  let tool: Tool;
  beforeAll(() => {
    tool = startTool({ backend: "servo", env });
  });
  afterAll(() => tool.stop());

  test("is opened, read and told apart from a Chromium", async () => {
    const opened = await tool.post("/navigate", { url: "http://stub.test/shop" });
    expect(opened).toMatchObject({ status: 200, body: { url: "http://stub.test/shop", title: "Stub page" } });
    expect(await tool.snapshot()).toBe(
      '- heading "Stub" [level=1] [ref=e1]\n- button "Pressed 0 times" [ref=e2]',
    );
    expect((await tool.get("/info")).body).toMatchObject({ backend: "servo", product: null, running: true });
  });

  test("takes real clicks, and script sees them", async () => {
    await tool.post("/navigate", { url: "http://stub.test/click" });
    expect((await tool.post("/click", { target: "e2" })).status).toBe(200);
    expect((await tool.post("/click", { target: "e2", double_click: true })).status).toBe(200);
    expect(await tool.evaluate("window.clicks")).toBe(3);
    expect(await tool.snapshot()).toContain("Pressed 3 times");
  });

  test("is photographed: the engine's bytes arrive", async () => {
    const { status, body } = await tool.post("/screenshot");
    expect(status).toBe(200);
    expect([...Buffer.from(body.data, "base64").subarray(0, 4)]).toEqual([0x89, 0x50, 0x4e, 0x47]);
  });

  test("fails as any page does: what is missing, wrong or unknown to the engine is named", async () => {
    const stale = await tool.post("/click", { target: "e9" });
    expect(stale.body.error).toMatchObject({ code: "stale_ref" });
    const wrong = await tool.post("/evaluate", { expression: "nothing" });
    expect(wrong.body.error).toMatchObject({ code: "evaluation_failed" });
    expect(wrong.body.error.message).toContain("only clicks is defined");
    const back = await tool.post("/back");
    expect(back).toMatchObject({ status: 501, body: { error: { code: "not_supported" } } });
    expect(back.body.error.message).toContain("servo does not know Page.getNavigationHistory");
    expect((await tool.post("/navigate", { url: "file:///etc/passwd" })).body.error.code).toBe("url_blocked");
  });
});

test("the same engine through the command line and MCP", async () => {
  const client = new McpClient(["--backend", "servo"], env);
  await client.initialize();
  const opened = await client.call("browser_navigate", { url: "stub.test/mcp" });
  expect(opened.text).toContain("- Page URL: https://stub.test/mcp");
  expect(opened.text).toContain('- button "Pressed 0 times" [ref=e2]');
  const clicked = await client.call("browser_click", { element: "the button", ref: "e2" });
  expect(clicked).toMatchObject({ isError: false });
  expect((await client.call("browser_snapshot")).text).toContain("Pressed 1 times");
  expect((await client.call("browser_evaluate", { function: "() => clicks" })).text).toContain("1");
  const unknown = await client.call("browser_press_key", { key: "a" });
  expect(unknown).toMatchObject({ isError: true });
  expect(unknown.text).toContain("servo does not know Input.dispatchKeyEvent");
  await client.end();
  expect(client.child.exitCode).toBe(0);
}, 90_000);

test("an engine without Target.setAutoAttach, which announces its page by itself, starts", async () => {
  const library = compileEngine(join(temp.path, "self.so"), ["-DSTUB_SELF_ATTACH"]);
  const tool = startTool({ backend: "servo", env: { ...env, BROWSER_SERVO_LIB: library } });
  const { status, body } = await tool.post("/navigate", { url: "http://stub.test/self" });
  expect([status, body.title ?? body.error]).toEqual([200, "Stub page"]);
  expect((await tool.post("/click", { target: "e2" })).status).toBe(200);
  expect(await tool.snapshot()).toContain("Pressed 1 times");
  await tool.stop();
});

test.each([
  ["missing", () => join(temp.path, "nowhere.so"), "BROWSER_SERVO_LIB names"],
  ["built for another version", () => compileEngine(join(temp.path, "v7.so"), ["-DSTUB_ABI=7"]), "version 7"],
])("a library that is %s is named in the answer to the first call", async (_what, library, words) => {
  const tool = startTool({ backend: "servo", env: { ...env, BROWSER_SERVO_LIB: library() } });
  const { status, body } = await tool.post("/navigate", { url: "http://stub.test/" });
  expect(status).toBe(503);
  expect(body.error).toMatchObject({ code: "browser_unavailable" });
  expect(body.error.message).toContain(words);
  await tool.stop();
});
