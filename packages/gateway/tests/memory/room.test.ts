import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMemoryServer } from "@model-gateway/memory-server/server.ts";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import {
  NO_ANSWER,
  type RpcHandler,
  startRpcSocketServer,
} from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { Memory } from "../../src/rooms/memory/index.ts";
import { WritebackQueue } from "../../src/rooms/memory/writeback.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

function memoryAt(url: string | null, clock: Clock = systemClock): Memory {
  const memory = new Memory({ url, bus: new InProcessBus(), instances: null, clock, log: silentLog });
  cleanup.push(() => memory.close());
  return memory;
}

function serve(handle: RpcHandler, port?: number) {
  const server = startRpcSocketServer(handle, port);
  cleanup.push(() => server.stop());
  return server;
}

function realServer() {
  const dataDir = mkdtempSync(join(tmpdir(), "memory-room-"));
  const server = startMemoryServer({ dataDir, port: 0 });
  cleanup.push(async () => {
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });
  return server;
}

const ask = (memory: Memory, query = "what about tea?") =>
  memory.recall({ userId: "u1", query, signal: new AbortController().signal });
const turn = (content: string, idempotencyKey: string) => ({
  userId: "u1",
  messages: [
    { role: "user", content },
    { role: "assistant", content: "Noted." },
  ],
  idempotencyKey,
});
const found = { items: [{ node_id: "n1", text: "likes tea", score: 1 }] };

test("a turn is written back and recalled later, and the events tell so", async () => {
  const memory = memoryAt(realServer().url);
  memory.writeback(turn("I drink jasmine tea every morning.", "t1"));
  await until("the turn was written", async () => (await memory.status("u1")).events.length === 1);
  const { state, items } = await ask(memory);
  expect(state).toBe("enabled");
  expect(items).toMatchObject([{ text: "I drink jasmine tea every morning." }]);
  expect(await memory.delete("u1", items[0]!.node_id)).toBe(true);
  expect(await ask(memory)).toEqual({ state: "enabled", items: [] });
  expect(
    (await memory.status("u1")).events.map(({ kind, outcome, count }) => [kind, outcome, count]),
  ).toEqual([
    ["recall", "ok", 0],
    ["delete", "ok", 1],
    ["recall", "ok", 1],
    ["writeback", "ok", 1],
  ]);
  expect((await memory.status("u2")).events).toEqual([]);
});

test("without a memory service everything is quietly off", async () => {
  const memory = memoryAt(null);
  expect(await ask(memory)).toEqual({ state: "disabled", items: [] });
  memory.writeback(turn("I like tea very much.", "t1"));
  expect(await memory.status("u1")).toEqual({ enabled: false, writeback: false, events: [] });
  expect(await memory.delete("u1", "n1")).toBe(false);
});

describe("a memory service in trouble leaves chats alone", () => {
  /** Recalls from a service that does its worst; the answer must be there within the limit and some slack. */
  async function expectOffline(memory: Memory): Promise<void> {
    const startedAtMs = performance.now();
    expect(await ask(memory)).toEqual({ state: "offline", items: [] });
    // The limit is 300 ms; a busy test machine may add its own delay, a forgotten limit would add seconds.
    expect(performance.now() - startedAtMs).toBeLessThan(2_500);
  }

  test("down", async () => {
    const gone = startRpcSocketServer(() => null);
    await gone.stop();
    const memory = memoryAt(gone.url);
    await expectOffline(memory);
    expect((await memory.status("u1")).events[0]).toMatchObject({ kind: "recall", outcome: "failed" });
    await expect(memory.delete("u1", "n1")).rejects.toThrow("cannot be reached");
  });

  test("deaf: it accepts the connection and says nothing", async () => {
    await expectOffline(memoryAt(serve(() => NO_ANSWER).url));
    const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    cleanup.push(() => listener.stop(true));
    await expectOffline(memoryAt(`ws://127.0.0.1:${listener.port}`));
  });

  test("talking garbage", async () => {
    for (const result of [null, "x", {}, { items: 3 }, { items: [{ node_id: 1 }] }, { items: [null] }])
      await expectOffline(memoryAt(serve(() => result).url));
    const rude = serve(({ peer }) => {
      peer.sendRaw("this is no JSON");
      return NO_ANSWER;
    });
    await expectOffline(memoryAt(rude.url));
  });

  test("flooding: unasked notifications and huge answers end the connection", async () => {
    const flood = serve(({ peer }) => {
      for (let i = 0; i < 1_000; i++) peer.notify("Memory.News", { i });
      return found;
    });
    const memory = memoryAt(flood.url);
    await expectOffline(memory);
    await until("the flooding connection was closed", () => !flood.peers[0]!.open);
    const huge = { items: [{ node_id: "n", text: "x".repeat(8 * 1024 * 1024), score: 1 }] };
    await expectOffline(memoryAt(serve(() => huge).url));
  });

  test("more facts than asked for are cut", async () => {
    const items = Array.from({ length: 500 }, (_, i) => ({ node_id: `n${i}`, text: "t", score: 1 }));
    expect((await ask(memoryAt(serve(() => ({ items })).url))).items).toHaveLength(8);
  });

  test("the limit is 300 ms by the clock, the connection included", async () => {
    const clock = new ManualClock();
    const server = serve(() => NO_ANSWER);
    const recalling = ask(memoryAt(server.url, clock));
    await until("it was asked", () => server.received.length === 1);
    let done = false;
    void recalling.then(() => {
      done = true;
    });
    clock.advance(299);
    await Bun.sleep(20);
    expect(done).toBe(false);
    clock.advance(1);
    expect(await recalling).toEqual({ state: "offline", items: [] });
  });

  test("after three failures it is not even asked for a while; then it is, on a new connection", async () => {
    const clock = new ManualClock();
    let healthy = false;
    const server = serve(() => (healthy ? found : { items: "?" }));
    const memory = memoryAt(server.url, clock);
    for (let i = 0; i < 3; i++) expect((await ask(memory)).state).toBe("offline");
    healthy = true;
    expect((await ask(memory)).state).toBe("offline");
    expect(server.received).toHaveLength(3);
    clock.advance(10_000);
    expect(await ask(memory)).toEqual({ state: "enabled", items: found.items });
    expect(server.peers).toHaveLength(2);
  });

  test("a client that leaves does not count against the service", async () => {
    const server = serve(({ params }) => (params.query === "stay" ? found : NO_ANSWER));
    const memory = memoryAt(server.url);
    for (let i = 0; i < 5; i++) {
      const leaving = new AbortController();
      const waiting = memory.recall({ userId: "u1", query: "leave", signal: leaving.signal });
      leaving.abort();
      expect((await waiting).items).toEqual([]);
    }
    expect((await ask(memory, "stay")).state).toBe("enabled");
    expect((await memory.status("u1")).events).toHaveLength(1);
  });
});

describe("writeback", () => {
  test("is tried again with the same key until the service is back, in order", async () => {
    const gone = startRpcSocketServer(() => null);
    await gone.stop();
    const memory = memoryAt(gone.url);
    memory.writeback(turn("I like tea.", "t1"));
    memory.writeback(turn("I like coffee.", "t2"));
    const server = serve(() => ({ ok: true, node_ids: ["n"] }), gone.port);
    await until("both turns arrived", async () => (await memory.status("u1")).events.length === 2);
    expect(server.received.map(({ params }) => params.idempotency_key)).toEqual(["t1", "t2"]);
    expect(server.received[0]!.params).toMatchObject({
      user_id: "u1",
      messages: turn("I like tea.", "t1").messages,
    });
  });

  test("gives up after five attempts, ever further apart, and goes on with the next turn", async () => {
    const clock = new ManualClock();
    const attempts: [string, number][] = [];
    const outcomes: [string, boolean][] = [];
    const queue = new WritebackQueue({
      clock,
      write: async ({ idempotencyKey }) => {
        attempts.push([idempotencyKey, clock.now()]);
        if (idempotencyKey === "bad") throw new Error("refused");
        return ["n1"];
      },
      onDone: ({ idempotencyKey }, outcome) => outcomes.push([idempotencyKey, "nodeIds" in outcome]),
    });
    const startedAtMs = clock.now();
    queue.push(turn("I like tea.", "bad"));
    queue.push(turn("I like tea.", "good"));
    await until("both turns ended", () => {
      clock.advance(1_000);
      return outcomes.length === 2;
    });
    expect(outcomes).toEqual([
      ["bad", false],
      ["good", true],
    ]);
    expect(attempts.map(([key]) => key)).toEqual(["bad", "bad", "bad", "bad", "bad", "good"]);
    expect(attempts.at(-2)![1] - startedAtMs).toBeGreaterThanOrEqual(15_000);
  });

  test("the last turns are written before the process ends, unless the service is down", async () => {
    const server = serve(async () => {
      await Bun.sleep(20);
      return { ok: true, node_ids: [] };
    });
    const memory = memoryAt(server.url);
    for (let i = 0; i < 3; i++) memory.writeback(turn("I like tea.", `t${i}`));
    await memory.flush();
    expect(server.received).toHaveLength(3);
    const deaf = memoryAt(serve(() => NO_ANSWER).url);
    deaf.writeback(turn("I like tea.", "t"));
    await deaf.flush();
    expect((await deaf.status("u1")).events).toEqual([]);
  });

  test("a full queue drops what comes, and empty messages are not sent", async () => {
    const server = serve(() => NO_ANSWER);
    const memory = memoryAt(server.url);
    for (let i = 0; i < 1_100; i++) memory.writeback(turn("I like tea.", `t${i}`));
    const { events } = await memory.status("u1");
    expect(events).toHaveLength(50);
    expect(events[0]).toMatchObject({ kind: "writeback", outcome: "failed" });
    memory.writeback({ userId: "u9", messages: [{ role: "user", content: " " }], idempotencyKey: "e" });
    expect((await memory.status("u9")).events).toEqual([]);
  });
});

test("memory.status and memory.delete through the door", async () => {
  const memoryServer = realServer();
  const gateway = await bootGateway({ config: { memoryUrl: memoryServer.url } });
  cleanup.push(() => gateway.stop());
  const [ana, bob] = [await gateway.signIn("ana"), await gateway.signIn("bob")];
  expect(await gateway.rpc("memory.status", {}, ana)).toEqual({ enabled: true, writeback: true, events: [] });

  const { memory } = gateway.app.rooms;
  const { id: userId } = await gateway.rpc("auth.me", {}, ana);
  memory.writeback({ ...turn("I drink jasmine tea.", "t1"), userId });
  await until(
    "it was written",
    async () => (await gateway.rpc("memory.status", {}, ana)).events.length === 1,
  );
  const { items } = await memory.recall({ userId, query: "tea", signal: AbortSignal.timeout(5_000) });
  const node_id = items[0]!.node_id;
  expect(await gateway.rpc("memory.delete", { node_id }, bob)).toEqual({ deleted: false });
  expect(await gateway.rpc("memory.delete", { node_id }, ana)).toEqual({ deleted: true });
  const { events } = await gateway.rpc("memory.status", {}, ana);
  expect(events.map(({ kind }: { kind: string }) => kind)).toEqual(["delete", "recall", "writeback"]);
  expect((await gateway.rpc("memory.status", {}, bob)).events).toHaveLength(1);

  expect((await gateway.call("memory.status")).error.code).toBe(-32005);
  expect((await gateway.call("memory.delete", {}, ana)).error).toMatchObject({
    code: -32602,
    message: expect.stringContaining("node_id"),
  });
  await memoryServer.stop();
  expect((await gateway.call("memory.delete", { node_id }, ana)).error.message).toContain(
    "cannot be reached",
  );
});
