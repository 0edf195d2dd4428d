import { afterEach, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { type ReplyWriter, StreamedReply } from "../../src/http/reply.ts";
import type { AnyReply } from "../../src/server/connection.ts";
import {
  BODY_SILENCE_MS,
  HEAD_MS,
  IDLE_MS,
  IDLE_RETIRING_MS,
  LINGER_MS,
  UNREAD_MS,
} from "../../src/server/limits.ts";
import { SocketReply } from "../../src/server/upgrade.ts";
import { clientFrame } from "../websocket/support.ts";
import { echo, type Handle, Pending, TestServer, TestSource, text } from "./support.ts";

const HOST = "Host: a\r\n";
const get = (path: string, headers = "") => `GET ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
const post = (headers: string, body = "") => `POST /x HTTP/1.1\r\n${HOST}${headers}\r\n${body}`;
const HEAD = { status: 200, contentType: "a/b", requestId: "r" };
const SWEEP_MS = 1_000;
const UPGRADE =
  "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

let server: TestServer;
const serve = (handle: Handle) => {
  server = new TestServer(handle);
};
const connected = () => until("the connection", () => server.listener.connectionCount === 1);
afterEach(() => server.stop());

describe("clients that keep us waiting", () => {
  test("a connection on which nothing comes", async () => {
    serve(echo);
    const client = await server.connect();
    await connected();
    server.clock.advance(HEAD_MS - SWEEP_MS);
    expect(server.listener.connectionCount).toBe(1);
    server.clock.advance(2 * SWEEP_MS);
    expect((await client.everything()).length).toBe(0);
    expect(client.isReset).toBe(false);
  });

  test("half a head: 408, from its first byte on and not from the last answer", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(get("/x"));
    await client.answer();
    server.clock.advance(IDLE_MS - 2 * SWEEP_MS);
    client.send("GET /y HT");
    // It has come when another request that was sent later is answered.
    const other = await server.connect();
    other.send(get("/z"));
    await other.answer();
    server.clock.advance(HEAD_MS - SWEEP_MS);
    client.send("TP/1.1\r\nHost: a\r\n");
    server.clock.advance(3 * SWEEP_MS);
    expect((await client.answer()).status).toBe(408);
    await client.ended();
  });

  test("a kept connection without a request ends quietly", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(get("/x"));
    await client.answer();
    server.clock.advance(IDLE_MS - SWEEP_MS);
    expect(server.listener.connectionCount).toBe(1);
    server.clock.advance(2 * SWEEP_MS);
    await client.ended();
    expect(client.isReset).toBe(false);
  });

  test("a body that stops coming: 408, and the handler hears of it", async () => {
    const failure = new Pending<unknown>();
    serve(async (request) => {
      try {
        return text(await request.body(100));
      } catch (error) {
        failure.resolve(error);
        return text("late");
      }
    });
    const client = await server.connect();
    client.send(post("Content-Length: 10\r\n", "half"));
    await until("the request", () => server.requests.length === 1);
    server.clock.advance(BODY_SILENCE_MS + SWEEP_MS);
    expect((await client.answer()).status).toBe(408);
    expect(String(await failure.promise)).toContain("did not come in time");
    expect((await client.everything()).length).toBe(0);
  });

  test("a body that drips: 408 once it is slower than 500 bytes a second, and not a steady one", async () => {
    serve(echo);
    const [dripping, steady] = [await server.connect(), await server.connect()];
    dripping.send(post("Content-Length: 1000\r\n", "x"));
    steady.send(post("Content-Length: 40000\r\n", "x".repeat(10_000)));
    await until("the requests", () => server.requests.length === 2);
    for (let i = 0; i < 3; i++) {
      server.clock.advance(BODY_SILENCE_MS / 3);
      dripping.send("x");
      steady.send("x".repeat(10_000));
      // Both have come when another request that was sent later is answered.
      const other = await server.connect();
      other.send(get("/z"));
      await other.answer();
    }
    expect((await steady.answer()).status).toBe(200);
    server.clock.advance(SWEEP_MS);
    expect((await dripping.answer()).status).toBe(408);
  });

  test("our own time does not count: neither a handler's, nor before it asks for the body", async () => {
    const wanted = new Pending<void>();
    const answer = new Pending<void>();
    serve(async (request) => {
      await wanted.promise;
      const body = await request.body(100);
      await answer.promise;
      return text(body);
    });
    const client = await server.connect();
    client.send(post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"));
    await until("the request", () => server.requests.length === 1);
    server.clock.advance(10 * IDLE_MS);
    wanted.resolve();
    client.send("0\r\n\r\n");
    await until("the body", () => (server.requests[0]!.content as { isDone?: boolean }).isDone === true);
    server.clock.advance(10 * IDLE_MS);
    answer.resolve();
    expect((await client.answer()).body.toString()).toBe("hello");
  });

  test("a whole chunked request at once does not start a clock on its handler", async () => {
    const answer = new Pending<AnyReply>();
    serve(() => answer.promise);
    const client = await server.connect();
    client.send(post("Transfer-Encoding: chunked\r\n", `5\r\nhello\r\n0\r\n\r\n${get("/half").slice(0, 9)}`));
    await until("the request", () => server.requests.length === 1);
    server.clock.advance(10 * IDLE_MS);
    answer.resolve(text("done"));
    expect((await client.answer()).body.toString()).toBe("done");
  });

  test.each(["whole", "streamed"])("nobody reads the %s answer: cut off", async (kind) => {
    let written = 0;
    const fill = (writer: ReplyWriter) => {
      do written++;
      while (writer.write(Buffer.alloc(1024 * 1024)));
    };
    const source = new TestSource(fill);
    source.drained = () => fill(source.writer!);
    const large = Buffer.alloc(32 * 1024 * 1024);
    serve(() => (kind === "whole" ? text(large) : new StreamedReply(HEAD, source)));
    const client = await server.connect();
    client.socket.pause();
    client.send(get("/x"));
    await until("the request", () => server.requests.length === 1);
    await until("the kernel takes no more", async () => {
      const before = written;
      await Bun.sleep(20);
      return written === before;
    });
    server.clock.advance(UNREAD_MS - SWEEP_MS);
    expect(server.listener.connectionCount).toBe(1);
    server.clock.advance(2 * SWEEP_MS);
    expect(server.listener.connectionCount).toBe(0);
    if (kind === "streamed") expect(source.calls).toEqual(["begin", "left"]);
  });

  test("a stream that has nothing to say may last", async () => {
    const source = new TestSource((writer) => writer.write("a"));
    serve(() => new StreamedReply(HEAD, source));
    const client = await server.connect();
    client.send(get("/x"));
    await client.containing("a\r\n");
    server.clock.advance(10 * IDLE_MS);
    source.writer!.end();
    expect((await client.answer()).body.toString()).toBe("a");
  });

  test("a client that does not end its side is left behind", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(get("/x", "Connection: close\r\n"));
    await client.ended();
    expect(server.listener.connectionCount).toBe(1);
    server.clock.advance(LINGER_MS + SWEEP_MS);
    expect(server.listener.connectionCount).toBe(0);
  });
});

describe("stopping", () => {
  test("what is idle ends, what is under way finishes and says so", async () => {
    const answer = new Pending<AnyReply>();
    const source = new TestSource((writer) => writer.write("a"));
    serve((request) => {
      if (request.path === "/wait") return answer.promise;
      return request.path === "/stream" ? new StreamedReply(HEAD, source) : text("x");
    });
    const [idle, kept, waiting, streaming] = await Promise.all(
      Array.from({ length: 4 }, () => server.connect()),
    );
    kept!.send(get("/x"));
    await kept!.answer();
    waiting!.send(get("/wait"));
    streaming!.send(get("/stream"));
    await until("the requests", () => server.requests.length === 3);
    const stopped = server.listener.stop();
    server.clock.advance(IDLE_RETIRING_MS + SWEEP_MS);
    await Promise.all([idle!.ended(), kept!.ended()]);
    expect(server.listener.connectionCount).toBe(2);
    answer.resolve(text("late"));
    const last = await waiting!.answer();
    expect([last.body.toString(), last.headers.get("connection")]).toEqual(["late", "close"]);
    await waiting!.ended();
    waiting!.leave();
    source.writer!.end();
    expect((await streaming!.answer()).body.toString()).toBe("a");
    server.clock.advance(IDLE_RETIRING_MS + SWEEP_MS);
    await streaming!.ended();
    streaming!.leave();
    await stopped;
    expect(server.listener.connectionCount).toBe(0);
  });

  test("a request that crosses the stop on a connection which was to be kept is answered, and told so", async () => {
    const source = new TestSource((writer) => writer.write("a"));
    serve((request) => (request.path === "/stream" ? new StreamedReply(HEAD, source) : text("x")));
    const [kept, streaming] = await Promise.all([server.connect(), server.connect()]);
    kept!.send(get("/x"));
    expect((await kept!.answer()).headers.has("connection")).toBe(false);
    streaming!.send(get("/stream"));
    await until("the requests", () => server.requests.length === 2);
    const stopped = server.listener.stop();
    source.writer!.end();
    expect((await streaming!.answer()).headers.has("connection")).toBe(false);
    for (const client of [kept!, streaming!]) {
      client.send(get("/x"));
      expect((await client.answer()).headers.get("connection")).toBe("close");
      await client.ended();
      client.leave();
    }
    await stopped;
  });

  test("retire: every answer is the last of its connection, new connections still come", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(get("/x"));
    expect((await client.answer()).headers.has("connection")).toBe(false);
    server.listener.retire();
    client.send(get("/x"));
    expect((await client.answer()).headers.get("connection")).toBe("close");
    expect(await server.talk(get("/new"))).toContain("connection: close");
  });

  test("an answer that is still being taken when it stops is taken to its end", async () => {
    const large = Buffer.alloc(32 * 1024 * 1024);
    serve(() => text(large));
    const client = await server.connect();
    client.socket.pause();
    client.send(get("/x"));
    await until("the request", () => server.requests.length === 1);
    const stopped = server.listener.stop();
    client.socket.resume();
    expect((await client.answer()).body.length).toBe(large.length);
    server.clock.advance(IDLE_RETIRING_MS + SWEEP_MS);
    await client.ended();
    client.leave();
    await stopped;
  });

  test("now: everything is broken off, and everybody hears of it", async () => {
    const source = new TestSource((writer) => writer.write("a"));
    serve((request) =>
      request.path === "/stream" ? new StreamedReply(HEAD, source) : new Promise<AnyReply>(() => {}),
    );
    const clients = await Promise.all([server.connect(), server.connect()]);
    clients[0]!.send(get("/stream"));
    clients[1]!.send(get("/wait"));
    await until("the requests", () => server.requests.length === 2);
    await server.listener.stop(true);
    for (const client of clients) await client.closed();
    expect(source.calls).toEqual(["begin", "left"]);
    expect(server.requests.map((request) => request.signal.aborted)).toEqual([true, true]);
  });

  test("two listeners share a port, and one goes on when the other stops", async () => {
    server = new TestServer(echo, { reusePort: true });
    const second = new TestServer(echo, { reusePort: true, port: server.port });
    expect(await second.talk(get("/x", "Connection: close\r\n"))).toContain("200 OK");
    await second.stop();
    for (let i = 0; i < 10; i++)
      expect(await server.talk(get("/x", "Connection: close\r\n"))).toContain("200 OK");
  });
});

describe("WebSockets", () => {
  const events: string[] = [];
  const answer = () =>
    new SocketReply("r", null, {
      open: () => void events.push("open"),
      message(socket, message) {
        events.push(String(message));
        socket.sendText(`got ${message}`);
      },
      close: (_socket, code) => void events.push(`close ${code}`),
    });
  const serveSockets = (handle: Handle = answer) => {
    events.length = 0;
    serve(handle);
  };

  test("frames right behind the head are not lost, however the head was answered", async () => {
    const later = new Pending<AnyReply>();
    serveSockets((request) => (request.path === "/later" ? later.promise : answer()));
    const large = "x".repeat(100_000);
    for (const path of ["/now", "/later"]) {
      const client = await server.connect();
      client.send(
        Buffer.concat([Buffer.from(get(path, UPGRADE)), clientFrame({ opcode: 1, payload: large })]),
      );
      client.send(clientFrame({ opcode: 1, payload: "second" }));
      await until("the request", () => server.requests.at(-1)?.path === path);
      if (path === "/later") later.resolve(answer());
      await client.containing("got second");
      expect(client.bytes.toString("latin1")).toStartWith("HTTP/1.1 101 ");
      client.leave();
    }
    await server.untilEmpty();
    expect(events.filter((event) => event.startsWith("close"))).toEqual(["close 1006", "close 1006"]);
  });

  test("refused: HTTP/1.0, with a body, and no upgrade at all", async () => {
    serveSockets();
    const requests = [
      `GET /x HTTP/1.0\r\n${UPGRADE}\r\n`,
      get("/x", `${UPGRADE}Content-Length: 5\r\n`).concat("hello"),
      get("/x", "Connection: close\r\n"),
    ];
    for (const request of requests) {
      const client = await server.connect();
      client.send(request);
      expect((await client.answer()).status).toBe(426);
      client.leave();
    }
    expect(events).toEqual([]);
  });

  test("stopping says 1001 to those that are open and to those that open meanwhile", async () => {
    const later = new Pending<AnyReply>();
    serveSockets((request) => (request.path === "/later" ? later.promise : answer()));
    const [open, opening] = await Promise.all([server.connect(), server.connect()]);
    open!.send(get("/x", UPGRADE));
    opening!.send(get("/later", UPGRADE));
    await open!.containing("101");
    await until("both requests", () => server.requests.length === 2);
    const stopped = server.listener.stop();
    later.resolve(answer());
    const goingAway = Buffer.from([0x03, 0xe9]);
    for (const client of [open!, opening!]) {
      await client.containing("this instance is stopping");
      expect(client.bytes.includes(goingAway)).toBe(true);
      client.send(clientFrame({ opcode: 8, payload: goingAway }));
      await client.ended();
      client.leave();
    }
    await stopped;
    expect(events).toEqual(["open", "open", "close 1001", "close 1001"]);
  });
});
