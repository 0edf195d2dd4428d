import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { startTool, type Tool, until } from "../helpers.ts";
import { type TempDir, tempDir } from "../resolve/support.ts";
import { compileEngine } from "./compile.ts";

const cli = join(import.meta.dir, "../../src/cli.ts");
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
  const child = Bun.spawn([process.execPath, cli, "mcp", "--backend", "servo"], {
    env,
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  let output = "";
  const reading = (async () => {
    for await (const chunk of child.stdout) output += new TextDecoder().decode(chunk);
  })();
  const replies = () =>
    output
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { id: number; result: { content: { text: string }[] } });
  let nextId = 1;
  async function ask(method: string, params: object): Promise<{ content: { text: string }[] }> {
    const id = nextId++;
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    child.stdin.flush();
    await until(
      `${method} is answered`,
      () => output.endsWith("\n") && replies().some((each) => each.id === id),
      60_000,
    );
    return replies().find((each) => each.id === id)!.result;
  }
  const call = async (name: string, args: object) =>
    (await ask("tools/call", { name, arguments: args })).content[0]!.text;
  const clientInfo = { name: "test", version: "1" };
  await ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
  const opened = await call("browser_navigate", { url: "stub.test/mcp" });
  expect(opened).toContain("- Page URL: https://stub.test/mcp");
  expect(opened).toContain('- button "Pressed 0 times" [ref=e2]');
  expect(await call("browser_click", { element: "the button", ref: "e2" })).toContain("Stub page");
  expect(await call("browser_snapshot", {})).toContain("Pressed 1 times");
  expect(await call("browser_evaluate", { function: "() => clicks" })).toContain("1");
  child.stdin.end();
  expect(await child.exited).toBe(0);
  await reading;
}, 90_000);

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
