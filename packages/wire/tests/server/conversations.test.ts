import { afterEach, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { StreamedReply } from "../../src/http/reply.ts";
import type { AnyReply } from "../../src/server/connection.ts";
import type { IncomingRequest } from "../../src/server/incoming-request.ts";
import { answered, echo, type Handle, Pending, TestServer, TestSource, text } from "./support.ts";

const HOST = "Host: a\r\n";
const get = (path: string, headers = "") => `GET ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
const post = (headers: string, body = "") => `POST /x HTTP/1.1\r\n${HOST}${headers}\r\n${body}`;

let server: TestServer;
let expectedErrors: string[] = [];
const serve = (handle: Handle) => {
  server = new TestServer(handle);
};
afterEach(async () => {
  await server.stop(expectedErrors);
  expectedErrors = [];
});

const limited = (bytesMax: number) => (request: IncomingRequest) =>
  answered(async () => text(await request.body(bytesMax)));

describe("bodies", () => {
  test("too large by its declared length: refused at once, and a client that goes on sending can read why", async () => {
    serve(limited(1_000));
    const client = await server.connect();
    client.send(post("Content-Length: 20000000\r\n"));
    const piece = Buffer.alloc(1024 * 1024);
    for (let i = 0; i < 20; i++) await client.sendPieces([piece]);
    const answer = await client.answer();
    expect([answer.status, answer.headers.get("connection")]).toEqual([413, "close"]);
    expect(client.isReset).toBe(false);
  });

  test("too large in chunks: refused once it is known, and not read on for ever", async () => {
    serve(limited(1_000));
    const client = await server.connect();
    client.send(post("Transfer-Encoding: chunked\r\n"));
    const chunk = Buffer.from(`8000\r\n${"x".repeat(0x8000)}\r\n`);
    for (let i = 0; i < 40; i++) await client.sendPieces([chunk]);
    expect((await client.answer()).status).toBe(413);
    await client.ended();
    expect(client.isReset).toBe(false);
  });

  test("a small one that nobody wanted is read away for the next request", async () => {
    serve((request) => text(request.path));
    const client = await server.connect();
    client.send(post("Content-Length: 10\r\n", "half!"));
    expect((await client.answer()).body.toString()).toBe("/x");
    client.send(`rest!${get("/next")}`);
    expect((await client.answer()).body.toString()).toBe("/next");
  });

  test("bad chunks of a body that nobody wanted end the connection without a second answer", async () => {
    serve(() => text("done"));
    const client = await server.connect();
    client.send(post("Transfer-Encoding: chunked\r\n", "5\r\n"));
    expect((await client.answer()).status).toBe(200);
    client.send(`bad${get("/next")}`);
    expect((await client.everything()).length).toBe(0);
  });

  test("one that nobody has asked for yet waits with the client, and comes whole", async () => {
    const wanted = new Pending<void>();
    serve(async (request) => {
      await wanted.promise;
      return text(String((await request.body(64 * 1024 * 1024)).length));
    });
    const client = await server.connect();
    const bytes = 32 * 1024 * 1024;
    client.send(post(`Content-Length: ${bytes}\r\n`));
    client.send(Buffer.alloc(bytes));
    await until("the request", () => server.requests.length === 1);
    await until("the network is full", () => client.socket.writableLength > 0);
    wanted.resolve();
    expect((await client.answer()).body.toString()).toBe(String(bytes));
  });

  test("very many tiny chunks", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(`${post("Transfer-Encoding: chunked\r\n")}${"1;x\r\na\r\n".repeat(100_000)}0\r\n\r\n`);
    expect((await client.answer()).body.toString()).toBe(`POST /x?\n${"a".repeat(100_000)}`);
  });

  test("asked for after the client has left: refused instead of waited for", async () => {
    const wanted = new Pending<void>();
    const outcome = new Pending<string>();
    serve(async (request) => {
      await wanted.promise;
      const answer = await limited(1_000)(request);
      outcome.resolve(String(answer.body));
      return answer;
    });
    const client = await server.connect();
    client.send(post("Content-Length: 10\r\n", "half"));
    await until("the request", () => server.requests.length === 1);
    client.leave();
    await server.untilEmpty();
    wanted.resolve();
    expect(await outcome.promise).toContain("the client left");
  });
});

describe("Expect: 100-continue", () => {
  const HEAD = post("Content-Length: 5\r\nExpect: 100-continue\r\n");
  test("the client is told when somebody wants the body", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(HEAD);
    expect((await client.answer()).status).toBe(100);
    client.send(`hello${get("/next")}`);
    expect((await client.answer()).body.toString()).toBe("POST /x?\nhello");
    expect((await client.answer()).body.toString()).toBe("GET /next?\n");
  });
  test("a refusal comes instead of it, and ends the connection", async () => {
    serve(limited(1));
    const answers = await server.talk(HEAD);
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 413"]);
    expect(answers).toContain("connection: close");
  });
  test("no word of it when the body is there, or in HTTP/1.0", async () => {
    serve(echo);
    const client = await server.connect();
    client.send(`${HEAD}hello`);
    expect((await client.answer()).status).toBe(200);
    client.send("POST /x HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    await until("the request", () => server.requests.length === 2);
    client.send("hello");
    expect((await client.answer()).status).toBe(200);
  });
});

describe("versions and methods", () => {
  test("HEAD has the length and no body; 204 has neither", async () => {
    serve((request) => (request.path === "/none" ? text("", 204) : text("hello")));
    const client = await server.connect();
    client.send(`HEAD /x HTTP/1.1\r\n${HOST}\r\n${get("/none")}${get("/x")}`);
    const head = await client.answer({ toHead: true });
    expect(head.headers.get("content-length")).toBe("5");
    const none = await client.answer();
    expect([none.status, none.headers.has("content-length")]).toEqual([204, false]);
    expect((await client.answer()).body.toString()).toBe("hello");
  });
  test("HTTP/1.0 ends after its answer, unless it asks to be kept", async () => {
    serve(echo);
    expect(await server.talk("GET /x HTTP/1.0\r\n\r\n")).toContain("connection: close");
    const client = await server.connect();
    client.send("GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    expect((await client.answer()).headers.get("connection")).toBe("keep-alive");
    client.send(get("/y", "Connection: close\r\n"));
    expect((await client.answer()).headers.get("connection")).toBe("close");
    await client.ended();
  });
  test("a streamed answer to HTTP/1.0 ends with the connection, one to HEAD is only its head", async () => {
    const source = new TestSource((writer) => writer.end(Buffer.from("all")));
    serve(() => new StreamedReply({ status: 200, contentType: "a/b", requestId: "r" }, source));
    expect(await server.talk("GET /x HTTP/1.0\r\n\r\n")).toEndWith("\r\n\r\nall");
    expect(source.calls).toEqual(["begin"]);
    const client = await server.connect();
    client.send(`HEAD /x HTTP/1.1\r\n${HOST}\r\n`);
    await client.answer({ toHead: true });
    expect(source.calls).toEqual(["begin", "left"]);
  });
});

describe("many requests at once", () => {
  const COUNT = 10_000;
  const all = Array.from({ length: COUNT }, (_, i) => get(`/${i}`)).join("");
  const late: Handle = async (request) => {
    if (request.path.endsWith("7")) await new Promise((resolve) => setImmediate(resolve));
    return text(request.path);
  };
  test.each([
    ["at once", ((request) => text(request.path)) as Handle],
    ["sooner or later", late],
  ])("are answered in order by a handler that answers %s", async (_when, handle) => {
    serve(handle);
    const client = await server.connect();
    client.send(all);
    for (let i = 0; i < COUNT; i += 1) {
      const { body } = await client.answer();
      if (body.toString() !== `/${i}`) throw new Error(`${body} instead of /${i}`);
    }
    expect(server.requests).toHaveLength(COUNT);
  });
  test("wait while the client takes no answers", async () => {
    const large = Buffer.alloc(1024 * 1024, "x");
    let served = 0;
    serve((request) => {
      if (request.path === "/other") return text("");
      served++;
      return text(large);
    });
    const client = await server.connect();
    client.socket.pause();
    client.send(Array.from({ length: 100 }, () => get("/x")).join(""));
    await until("the first request", () => served > 0);
    // Others are served meanwhile, so it would have had its turn.
    const other = await server.connect();
    for (let i = 0; i < 50; i++) {
      other.send(get("/other"));
      await other.answer();
    }
    expect(served).toBeLessThan(20);
    client.socket.resume();
    for (let i = 0; i < 100; i++) expect((await client.answer()).body.length).toBe(large.length);
  });
});

describe("clients that leave", () => {
  const WAYS = ["leave", "reset", "end"] as const;
  test.each(WAYS)("before the answer (%s): told exactly once, and the answer goes nowhere", async (way) => {
    const answer = new Pending<AnyReply>();
    serve(() => answer.promise);
    const client = await server.connect();
    client.send(get("/x"));
    await until("the request", () => server.requests.length === 1);
    let gone = 0;
    const { signal } = server.requests[0]!;
    server.requests[0]!.whenGone(() => gone++);
    client[way]();
    await server.untilEmpty();
    expect([gone, signal.aborted]).toEqual([1, true]);
    const source = new TestSource();
    answer.resolve(new StreamedReply({ status: 200, contentType: "a/b", requestId: "r" }, source));
    await until("the source hears of it", () => source.calls.length > 0);
    expect(source.calls).toEqual(["left"]);
    expect(gone).toBe(1);
  });
  test.each(WAYS)("in the middle of a stream (%s): left, once", async (way) => {
    const source = new TestSource((writer) => writer.write("first"));
    serve(() => new StreamedReply({ status: 200, contentType: "a/b", requestId: "r" }, source));
    const client = await server.connect();
    client.send(get("/x"));
    await client.containing("first");
    client[way]();
    await server.untilEmpty();
    expect(source.calls).toEqual(["begin", "left"]);
    expect(source.writer!.write("more")).toBe(true);
    source.writer!.end();
    expect(server.requests[0]!.signal.aborted).toBe(true);
  });
  test.each(WAYS)("after the answer (%s): nobody is told", async (way) => {
    let gone = 0;
    const source = new TestSource((writer) => writer.end(Buffer.from("all")));
    serve((request) => {
      request.whenGone(() => gone++);
      const head = { status: 200, contentType: "a/b", requestId: "r" };
      return request.path === "/stream" ? new StreamedReply(head, source) : text("x");
    });
    const client = await server.connect();
    client.send(get("/x") + get("/stream"));
    await client.answer();
    expect((await client.answer()).body.toString()).toBe("all");
    client[way]();
    await server.untilEmpty();
    expect([gone, source.calls]).toEqual([0, ["begin"]]);
    expect(server.requests.map((request) => request.signal.aborted)).toEqual([false, false]);
  });
});

describe("streamed answers", () => {
  const head = { status: 200, contentType: "a/b", requestId: "r" };
  test("a client that does not keep up: false, then drained", async () => {
    const source = new TestSource();
    serve(() => new StreamedReply(head, source));
    const client = await server.connect();
    client.socket.pause();
    client.send(get("/x"));
    await until("the begin", () => source.writer !== null);
    const piece = Buffer.alloc(256 * 1024, "y");
    let pieces = 1;
    while (source.writer!.write(piece)) pieces++;
    expect(source.calls).toEqual(["begin"]);
    client.socket.resume();
    await until("drained", () => source.calls.length > 1);
    source.writer!.end(Buffer.from("end"));
    const { body } = await client.answer();
    expect(body.length).toBe(pieces * piece.length + 3);
    expect(source.calls).toEqual(["begin", "drained"]);
  });
  test("one that breaks off is seen to be broken, and its source is not told what it did itself", async () => {
    const source = new TestSource();
    serve(() => new StreamedReply(head, source));
    const client = await server.connect();
    client.send(get("/x"));
    await client.containing("\r\n\r\n");
    source.writer!.write("some");
    await client.containing("some");
    source.writer!.terminate();
    await client.closed();
    expect(client.bytes.includes("0\r\n\r\n")).toBe(false);
    expect(source.calls).toEqual(["begin"]);
    expect(server.requests[0]!.signal.aborted).toBe(false);
  });
  test("what a source writes after its end is in nobody else's answer", async () => {
    const sources = [new TestSource(), new TestSource()];
    let at = 0;
    serve(() => new StreamedReply(head, sources[at++]!));
    const client = await server.connect();
    client.send(get("/1") + get("/2"));
    await until("the first", () => sources[0]!.writer !== null);
    sources[0]!.writer!.end(Buffer.from("one"));
    expect((await client.answer()).body.toString()).toBe("one");
    await until("the second", () => sources[1]!.writer !== null);
    sources[0]!.writer!.write("stray");
    sources[0]!.writer!.terminate();
    sources[1]!.writer!.end(Buffer.from("two"));
    expect((await client.answer()).body.toString()).toBe("two");
  });
});

describe("handlers that break the rules", () => {
  test("thrown and rejected: 500 and the end", async () => {
    serve((request) => {
      if (request.path === "/throws") throw new Error("oops");
      return Promise.reject(new Error("oops"));
    });
    for (const path of ["/throws", "/rejects"])
      expect(await server.talk(get(path))).toContain("HTTP/1.1 500");
    expectedErrors = Array(2).fill("a request failed outside of its handler: Error: oops");
  });
  test("a header that would become two is not written", async () => {
    const values = ["a\r\nb: c", "a\nb", "\u560d\u560ab: c", "a\0"];
    serve((request) => text("x", 200, { evil: values[Number(request.path.slice(1))]! }));
    for (let i = 0; i < values.length; i++) {
      const client = await server.connect();
      client.send(get(`/${i}`));
      await client.closed();
      expect(client.bytes.length).toBe(0);
    }
    const error =
      "an answer could not be written: Error: the header evil has a character in it that no header may have";
    expectedErrors = Array(values.length).fill(error);
  });
});
