import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMemoryServer } from "@model-gateway/memory-server/server.ts";
import { NO_ANSWER, startRpcSocketServer } from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let memory: ReturnType<typeof startMemoryServer>;
const dataDir = mkdtempSync(join(tmpdir(), "gateway-memory-"));
beforeAll(async () => {
  memory = startMemoryServer({ dataDir, port: 0 });
  bench = await bootInference({ config: { memoryUrl: memory.url } });
});
afterAll(async () => {
  await bench.stop();
  await memory.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

const say = (content: string, rest: Record<string, unknown> = {}) =>
  bench.chat({ messages: [{ role: "user", content }], ...rest });
const sentMessages = () =>
  bench.upstream.requests.at(-1)!.json.messages as { role: string; content: string }[];
const written = async () =>
  (await bench.rpc("memory.status", {}, bench.token)).events.filter(
    ({ kind, outcome }: { kind: string; outcome: string }) => kind === "writeback" && outcome === "ok",
  ).length;

test("recalled facts are part of the prompt that is charged", async () => {
  const items = Array.from({ length: 4 }, (_, n) => ({
    node_id: `n${n}`,
    text: `What cat number ${n} likes: ${"warm milk and sun, ".repeat(45)}`,
    score: 1,
  }));
  const server = startRpcSocketServer(({ method }) => (method === "Memory.Recall" ? { items } : NO_ANSWER));
  const other = await bootInference({ config: { memoryUrl: server.url } });
  try {
    // No usage: the gateway's own count is charged.
    other.upstream.answer((_, reply) => reply.json(completion("ok", { usage: undefined })));
    const charged = async (memory: boolean): Promise<number> => {
      await other.chat({ messages: [{ role: "user", content: "What do my cats like?" }], memory });
      return (await other.usageRows())[0].prompt_tokens;
    };
    const plain = await charged(false);
    const recalling = await charged(true);
    expect(other.upstream.requests.at(-1)!.text.length).toBeGreaterThan(3_500);
    expect(recalling - plain).toBeGreaterThan(700);
  } finally {
    await other.stop();
    await server.stop();
  }
});

describe("memory in chats", () => {
  test("a finished turn is remembered and recalled in a later one, streamed or not", async () => {
    await (await say("My cat is called Misty.", { stream: true })).text();
    await until("the turn was written back", async () => (await written()) === 1);
    expect((await say("What is my cat called?")).status).toBe(200);
    const [user, ...others] = sentMessages();
    expect(others).toEqual([]);
    expect(user!.role).toBe("user");
    expect(user!.content).toMatch(/^What is my cat called\?\n\nFacts recalled.*Misty/s);
  });

  test("memory: false recalls nothing, but the turn is remembered", async () => {
    await until("the earlier turns were written back", async () => (await written()) === 2);
    await say("What is my cat called?", { memory: false });
    expect(sentMessages()).toEqual([{ role: "user", content: "What is my cat called?" }]);
    await until("the turn was written back", async () => (await written()) === 3);
  });

  test("events name the facts, memory.list has them all, and memory.delete takes one away", async () => {
    const { events } = await bench.rpc("memory.status", {}, bench.token);
    const named = events.flatMap(({ node_ids }: { node_ids: string[] }) => node_ids);
    const listed = await bench.rpc("memory.list", {}, bench.token);
    expect(listed.total).toBe(listed.items.length);
    expect(listed.total).toBeGreaterThan(0);
    const ids = listed.items.map(({ node_id }: { node_id: string }) => node_id);
    expect(ids.filter((id: string) => !named.includes(id))).toEqual([]);
    const page = await bench.rpc("memory.list", { limit: 1 }, bench.token);
    expect(page).toEqual({ items: [listed.items[0]], total: listed.total });
    expect(await bench.rpc("memory.delete", { node_id: ids[0] }, bench.token)).toEqual({ deleted: true });
    expect((await bench.rpc("memory.list", {}, bench.token)).total).toBe(listed.total - 1);
    expect(await bench.rpc("memory.list", {}, await bench.signIn("stranger"))).toEqual({
      items: [],
      total: 0,
    });
  });

  test("a question that was asked before anything was known of it gets the facts once there are some", async () => {
    await say("What is my bicycle's colour?");
    expect(sentMessages()[0]!.content).not.toContain("yellow");
    await say("My bicycle is yellow.");
    await until("it was remembered", async () =>
      JSON.stringify(await bench.rpc("memory.list", {}, bench.token)).includes("yellow"),
    );
    await say("What is my bicycle's colour?");
    expect(sentMessages()[0]!.content).toContain("My bicycle is yellow.");
  });

  test("chat.send reports the state, and a service that is gone does not hold chats up", async () => {
    const params = { model: "m", messages: [{ role: "user", content: "my cat" }] };
    expect((await bench.rpc("chat.send", params, bench.token)).memory).toBe("enabled");
    expect((await bench.rpc("chat.send", { ...params, memory: false }, bench.token)).memory).toBe("disabled");
    await memory.stop();
    expect((await bench.rpc("chat.send", params, bench.token)).memory).toBe("offline");
    expect((await say("still there?")).status).toBe(200);
  });
});
