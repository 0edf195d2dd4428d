import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@model-gateway/gateway/kernel/clock.ts";
import { RpcAnswerError, RpcClient } from "@model-gateway/wire/json-rpc";
import { type MemoryServer, startMemoryServer } from "../src/server.ts";

let dataDir: string;
let server: MemoryServer;
const cleanup: (() => unknown)[] = [];

const client = (url = server.url, headers?: Record<string, string>) => {
  const made = new RpcClient({ url, headers, clock: systemClock, connectTimeoutMs: 5_000 });
  cleanup.push(() => made.close());
  return made;
};
// biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
const call = (method: string, params: object, on = client()): Promise<any> =>
  on.call(method, params as Record<string, unknown>, { timeoutMs: 10_000 });
const write = (user_id: string, content: string, idempotency_key: string = crypto.randomUUID()) =>
  call("Memory.Write", { user_id, messages: [{ role: "user", content }], idempotency_key });
const recall = async (user_id: string, query: string, limit = 8) =>
  (await call("Memory.Recall", { user_id, query, limit })).items as {
    node_id: string;
    text: string;
    score: number;
  }[];

beforeAll(() => {
  dataDir = mkdtempSync(join(tmpdir(), "memory-server-"));
  server = startMemoryServer({ dataDir, port: 0 });
});
afterEach(async () => {
  for (const undo of cleanup.splice(0)) await undo();
});
afterAll(async () => {
  await server.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

test("what was said is found again, the best match first, in other forms of the words too", async () => {
  const { ok, node_ids } = await write(
    "ana",
    "My cats are called Misty and Tom. I work as a baker. I like cats.",
  );
  expect(ok).toBe(true);
  expect(node_ids).toHaveLength(3);
  const items = await recall("ana", "What is my cat called?");
  expect(items.map(({ text }) => text)).toEqual(["My cats are called Misty and Tom.", "I like cats."]);
  expect(items[0]!.score).toBeGreaterThan(items[1]!.score);
  expect(items[0]!.node_id).toBe(node_ids[0]);
  expect(await recall("ana", "cats", 1)).toHaveLength(1);
  expect(await recall("ana", "quantum physics")).toEqual([]);
});

test("scripts without spaces are searchable", async () => {
  await write("zh", "我的猫叫小雪。我住在上海。");
  expect((await recall("zh", "猫叫什么？")).map(({ text }) => text)).toEqual(["我的猫叫小雪。"]);
});

test("nobody finds or deletes what another said", async () => {
  const { node_ids } = await write("bob", "My password hint is elephant.");
  expect(await recall("eve", "elephant")).toEqual([]);
  expect(await recall('bob" OR owner : "', "elephant")).toEqual([]);
  expect(await call("Memory.Delete", { user_id: "eve", node_id: node_ids[0] })).toEqual({ deleted: false });
  expect(await recall("bob", "elephant")).toHaveLength(1);
  expect(await call("Memory.Delete", { user_id: "bob", node_id: node_ids[0] })).toEqual({ deleted: true });
  expect(await call("Memory.Delete", { user_id: "bob", node_id: node_ids[0] })).toEqual({ deleted: false });
  expect(await recall("bob", "elephant")).toEqual([]);
});

test("the same write twice, and the same fact twice, are stored once", async () => {
  const first = await write("carl", "I drive a red van.", "turn-1");
  expect(await write("carl", "I sail a blue boat.", "turn-1")).toEqual(first);
  const again = await write("carl", "i drive a RED van", "turn-2");
  expect(again).toEqual(first);
  expect(await recall("carl", "red van boat")).toHaveLength(1);
  expect(await write("dora", "I sail a blue boat.", "turn-1")).not.toEqual(first);
});

test("mistakes are answered with the field, and the connection goes on", async () => {
  const on = client();
  const failed = (method: string, params: object) =>
    call(method, params, on).catch((error: unknown) => error as RpcAnswerError);
  expect(await failed("Memory.Recall", { query: "x" })).toMatchObject({
    code: -32602,
    message: expect.stringContaining("user_id"),
  });
  expect(await failed("Memory.Forget", {})).toMatchObject({ code: -32601 });
  expect(await failed("Memory.Recall", { user_id: "a", query: "x", limit: 999 })).toBeInstanceOf(
    RpcAnswerError,
  );
  expect(await call("Memory.Recall", { user_id: "a", query: "" }, on)).toEqual({ items: [] });
});

test("browsers are kept out, and a token where one is set", async () => {
  const http = server.url.replace("ws:", "http:");
  expect((await fetch(http, { headers: { origin: "https://example.com" } })).status).toBe(403);
  expect((await fetch(http)).status).toBe(426);
  const guarded = startMemoryServer({
    dataDir: join(dataDir, "guarded"),
    port: 0,
    token: "a-long-enough-token",
  });
  cleanup.push(() => guarded.stop());
  const params = { user_id: "a", query: "x" };
  await expect(call("Memory.Recall", params, client(guarded.url))).rejects.toThrow();
  const bearer = { authorization: "Bearer a-long-enough-token" };
  expect(await call("Memory.Recall", params, client(guarded.url, bearer))).toEqual({ items: [] });
  expect(await call("Memory.Recall", params, client(`${guarded.url}/?token=a-long-enough-token`))).toEqual({
    items: [],
  });
});

test("as a program of its own: it remembers over a kill, and refuses a wide address without a token", async () => {
  const main = join(import.meta.dir, "../src/main.ts");
  const dir = join(dataDir, "program");
  const start = async () => {
    const child = Bun.spawn([process.execPath, main, "--port", "0", "--data", dir], { stdout: "pipe" });
    cleanup.push(() => child.kill("SIGKILL"));
    const reader = child.stdout.getReader();
    const line = new TextDecoder().decode((await reader.read()).value);
    return { child, url: /ws:\S+/.exec(line)![0] };
  };
  const first = await start();
  const message = { user_id: "kim", messages: [{ role: "user", content: "My bike is orange." }] };
  await call("Memory.Write", { ...message, idempotency_key: "k" }, client(first.url));
  first.child.kill("SIGKILL");
  await first.child.exited;
  const second = await start();
  const found = await call("Memory.Recall", { user_id: "kim", query: "bike" }, client(second.url));
  expect(found.items).toMatchObject([{ text: "My bike is orange." }]);
  second.child.kill("SIGTERM");
  expect(await second.child.exited).toBe(0);

  const wide = Bun.spawn([process.execPath, main, "--host", "0.0.0.0", "--data", dir], { stderr: "pipe" });
  expect(await wide.exited).toBe(1);
  expect(await new Response(wide.stderr).text()).toContain("--token");
});
