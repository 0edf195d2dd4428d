import { afterEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { NO_ANSWER, startRpcSocketServer } from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import { RpcClient } from "../../src/json-rpc/index.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0)) await undo();
});

function connect(url: string, clock: Clock = systemClock): RpcClient {
  const client = new RpcClient({ url, clock, connectTimeoutMs: 5_000 });
  cleanup.push(() => client.close());
  return client;
}

/** Completes the upgrade and then says nothing ever again, not even to a ping: a peer behind a dead link. */
function startFrozenPeer(): string {
  const accept = (key: string) =>
    createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  const listener = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      data(socket, bytes) {
        const key = /sec-websocket-key: (\S+)/i.exec(bytes.toString("latin1"))?.[1];
        if (key)
          socket.write(
            `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept(key)}\r\n\r\n`,
          );
      },
    },
  });
  cleanup.push(() => listener.stop(true));
  return `ws://127.0.0.1:${listener.port}`;
}

test("a connection that is open in name only is noticed without an answer falling due", async () => {
  const clock = new ManualClock();
  const client = connect(startFrozenPeer(), clock);
  const connection = await client.connection();
  const waiting = connection.call("anything", {}).catch((error: Error) => error);
  clock.advance(20_000);
  expect(connection.usable).toBe(true);
  clock.advance(20_000);
  expect(connection.usable).toBe(false);
  expect(await waiting).toMatchObject({
    reason: "lost",
    message: expect.stringContaining("no sign of life"),
  });
});

test("a peer that answers pings keeps its connection, however long it is silent", async () => {
  const clock = new ManualClock();
  const server = startRpcSocketServer(() => NO_ANSWER);
  cleanup.push(() => server.stop());
  const connection = await connect(server.url, clock).connection();
  for (let sent = 1; sent <= 5; sent++) {
    clock.advance(20_000);
    await until("the ping arrived", () => server.pings === sent);
    // Both ends share this event loop: after a few turns the pong is read as well.
    for (let turn = 0; turn < 5; turn++) await Bun.sleep(5);
  }
  expect(connection.usable).toBe(true);
});

test("a caller that leaves while the connection is made disturbs nobody", async () => {
  const server = startRpcSocketServer(({ params }) => params);
  cleanup.push(() => server.stop());
  const client = connect(server.url);
  const leaving = new AbortController();
  const left = client.call("a", { n: 1 }, { signal: leaving.signal }).catch((error: Error) => error.message);
  const stayed = client.call("b", { n: 2 });
  leaving.abort(new Error("left"));
  expect(await left).toBe("left");
  expect(await stayed).toEqual({ n: 2 });
  expect(server.peers).toHaveLength(1);
});

test("a late answer to a call that was given up is no breach", async () => {
  let answerLate = () => {};
  const server = startRpcSocketServer(({ method }) =>
    method === "slow"
      ? new Promise((resolve) => {
          answerLate = () => resolve("late");
        })
      : "quick",
  );
  cleanup.push(() => server.stop());
  const client = connect(server.url);
  const leaving = new AbortController();
  const slow = client.call("slow", {}, { signal: leaving.signal }).catch(() => "given up");
  await until("it was asked", () => server.received.length === 1);
  leaving.abort();
  expect(await slow).toBe("given up");
  answerLate();
  for (let i = 0; i < 3; i++) expect(await client.call("quick", {})).toBe("quick");
  expect(server.peers).toHaveLength(1);
});

test("a peer that does not read is not sent more and more", async () => {
  const clock = new ManualClock();
  const connection = await connect(startFrozenPeer(), clock).connection();
  const big = "x".repeat(4 * 1024 * 1024);
  let refused = 0;
  const calls = Array.from({ length: 20 }, () =>
    connection.call("big", { big }).catch((error: { reason?: string }) => {
      if (error.reason === "busy") refused++;
    }),
  );
  expect(connection.congested).toBe(true);
  expect(connection.notify("more", {})).toBe(false);
  connection.close("done");
  await Promise.all(calls);
  expect(refused).toBeGreaterThan(10);
});

test("nothing listens, no WebSocket there, a bad address: the call was never sent", async () => {
  const plain = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("no socket here") });
  cleanup.push(() => plain.stop(true));
  const gone = startRpcSocketServer(() => null);
  await gone.stop();
  for (const url of [gone.url, `ws://127.0.0.1:${plain.port}`, "nonsense"]) {
    const error = await connect(url)
      .call("x", {})
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ reason: "connect" });
  }
});
