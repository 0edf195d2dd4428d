import { afterEach, describe, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import fc from "fast-check";
import { type Answer, type FailureKind, HttpOrigin, type OriginOptions } from "../../src/client/index.ts";
import { HttpParseError, type ResponseHead, ResponseParser } from "../../src/client/response-parser.ts";
import { type Clock, systemClock } from "../../src/clock.ts";

const running: { server: Server; origin: HttpOrigin }[] = [];
afterEach(() => {
  for (const { server, origin } of running.splice(0)) {
    origin.close();
    server.close();
  }
});

interface Talk {
  /** The request's bytes so far, and which connection and request of it this is. */
  text: string;
  connection: number;
  request: number;
}

/** A server that is written byte by byte: `answer` is called with each whole request. */
async function serving(answer: (socket: Socket, talk: Talk) => void, clock: Clock = systemClock) {
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const connection = ++connections;
    let request = 0;
    let text = "";
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => {});
    socket.on("data", (bytes) => {
      text += bytes.toString("latin1");
      const length = /content-length: (\d+)\r\n\r\n/.exec(text);
      if (!length || text.length < length.index + length[0].length + Number(length[1])) return;
      const whole = text;
      text = "";
      answer(socket, { text: whole, connection, request: ++request });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const headers = { "content-type": "application/json", authorization: "Bearer k" };
  const origin = new HttpOrigin({ url: `http://127.0.0.1:${port}`, headers, ...errors }, clock);
  running.push({ server, origin });
  return { origin, sockets, connections: () => connections };
}

class TestError extends Error {
  constructor(
    readonly kind: FailureKind | "status",
    message: string,
  ) {
    super(message);
  }
}

const errors: Pick<OriginOptions, "failure" | "errorOf"> = {
  failure: (kind, message) => new TestError(kind, message),
  errorOf: async (answer) => new TestError("status", `${answer.status} ${await answer.bytes(1_000)}`),
};
const abortable = (signal: AbortSignal) => ({
  whenAborted(run: (reason: unknown) => void) {
    if (signal.aborted) run(signal.reason);
    else signal.addEventListener("abort", () => run(signal.reason), { once: true });
  },
});
const never = () => abortable(new AbortController().signal);
const whole = async (answer: Answer) => (await answer.bytes(1 << 24)).toString();
const failureOf = (promise: Promise<unknown> | unknown) =>
  Promise.resolve(promise).then(
    () => null,
    (error: unknown) => error as TestError,
  );
const withLength = (body: string, more = "") =>
  `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;

/** All that a parser finds in bytes that come in these pieces. */
function parsed(pieces: readonly Buffer[]) {
  const heads: ResponseHead[] = [];
  const body: Buffer[] = [];
  let ended = 0;
  const parser = new ResponseParser({
    headed: (head) => heads.push(head),
    piece: (bytes) => body.push(Buffer.from(bytes)),
    end: () => ended++,
  });
  for (const piece of pieces) parser.feed(piece);
  return { heads, body: Buffer.concat(body).toString(), ended, parser };
}

describe("what an answer looks like on the wire", () => {
  const chunked =
    'HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\nHTTP/1.1 200 OK\r\nserver: a\r\ntransfer-encoding: Chunked\r\nContent-Type:text/event-stream\r\n\r\n5\r\nhello\r\n1A;note="x"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\ntrailer: t\r\n\r\n';

  test("is the same however the bytes are cut", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 60 }), (lengths) => {
        const bytes = Buffer.from(chunked);
        const pieces: Buffer[] = [];
        let at = 0;
        for (const length of lengths) {
          pieces.push(bytes.subarray(at, at + length));
          at += length;
        }
        pieces.push(bytes.subarray(at));
        const { heads, body, ended, parser } = parsed(pieces);
        expect(heads).toMatchObject([{ status: 200, contentType: "text/event-stream" }]);
        expect(body).toBe("helloabcdefghijklmnopqrstuvwxyz");
        expect(ended).toBe(1);
        expect(parser.isReusable).toBe(true);
      }),
    );
  });

  test.each([
    ["a blank before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello"],
    ["blanks and a tab before the colon", "HTTP/1.1 200 OK\r\nContent-Length \t : 5\r\n\r\nhello"],
    ["a folded length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\nhello"],
    [
      "a folded header of ours",
      "HTTP/1.1 200 OK\r\nServer: a\r\n Content-Length: 9\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ["line feeds only", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"],
    ["line feeds and an empty line with a carriage return", "HTTP/1.1 200\nContent-Length: 5\n\r\nhello"],
    ["a line feed only after a header", "HTTP/1.1 200 OK\r\nServer: a\nContent-Length: 5\r\n\r\nhello"],
    [
      "chunks behind a blank before the colon",
      "HTTP/1.1 200 OK\nTransfer-Encoding : chunked\n\n5\r\nhello\r\n0\r\n\r\n",
    ],
    [
      "a folded encoding",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
  ])("%s: the length is known, and the connection is kept", (_what, answer) => {
    for (let cut = 0; cut < answer.length; cut++) {
      const { body, ended, parser } = parsed([
        Buffer.from(answer.slice(0, cut)),
        Buffer.from(answer.slice(cut)),
      ]);
      expect([cut, body, ended, parser.isReusable]).toEqual([cut, "hello", 1, true]);
    }
  });

  test.each([
    ["HTTP/2 200 OK\r\n\r\n", "not HTTP/1.1"],
    ["SSH-2.0-x\r\n\r\n", "not HTTP/1.1"],
    ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", "content-length"],
    ["HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length"],
    ["HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n", "gzip"],
    ["HTTP/1.1 101 Switching\r\n\r\n", "switched"],
    ["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "size"],
    ["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd", "longer"],
    ["HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab", "follow"],
  ])("is refused when it is none: %p", (text, reason) => {
    expect(() => parsed([Buffer.from(text)])).toThrow(HttpParseError);
    expect(() => parsed([Buffer.from(text)])).toThrow(reason);
  });

  test("is refused when its headers do not end", () => {
    const endless = Buffer.from(`HTTP/1.1 200 OK\r\nx: ${"y".repeat(70_000)}`);
    expect(() => parsed([endless])).toThrow("do not end");
  });

  test("may end with the connection, and then the connection is not kept", () => {
    const { parser, body } = parsed([Buffer.from("HTTP/1.0 200 OK\r\n\r\nall of it")]);
    expect(parser.isDone).toBe(false);
    expect(parser.closed()).toBe(true);
    expect(body).toBe("all of it");
    expect(parser.isReusable).toBe(false);
  });
});

describe("an origin", () => {
  test("keeps its connections and sends what was asked", async () => {
    const requests: string[] = [];
    const { origin, connections } = await serving((socket, { text }) => {
      requests.push(text);
      socket.write(withLength('{"n":1}'));
    });
    for (let i = 0; i < 5; i++) {
      const answer = await origin.post("/v1/x?y=1", Buffer.from('{"é":1}'), never());
      expect(answer.contentType).toBe("application/json");
      expect(await whole(answer)).toBe('{"n":1}');
    }
    expect(connections()).toBe(1);
    expect(requests[0]).toStartWith("POST /v1/x?y=1 HTTP/1.1\r\nhost: 127.0.0.1:");
    expect(requests[0]).toContain("\r\nauthorization: Bearer k\r\ncontent-length: 8\r\n\r\n");
    const many = Array.from({ length: 20 }, () => origin.post("/", "{}", never()).then(whole));
    expect(new Set(await Promise.all(many))).toEqual(new Set(['{"n":1}']));
  });

  test("sends and receives bodies of many megabytes", async () => {
    const large = "0123456789abcdef".repeat(1 << 19);
    const { origin } = await serving((socket, { text }) => {
      socket.write(withLength(text.slice(text.indexOf("\r\n\r\n") + 4)));
    });
    expect(await whole(await origin.post("/", large, never()))).toBe(large);
  });

  test("asks again over a new connection when a kept one was closed under it, but only then", async () => {
    const { origin, connections } = await serving((socket, { connection, request }) => {
      // The first connection dies just when it is used for the second time.
      if (connection === 1 && request === 2) socket.destroy();
      else if (connection === 3) socket.destroy();
      else socket.write(withLength("{}", connection === 2 ? "connection: close\r\n" : ""));
    }, new ManualClock());
    await origin.post("/", "{}", never()).then(whole);
    expect(await origin.post("/", "{}", never()).then(whole)).toBe("{}");
    expect(connections()).toBe(2);
    const error = await failureOf(origin.post("/", "{}", never()));
    expect(error).toBeInstanceOf(TestError);
    expect([error?.kind, connections()]).toEqual(["transport", 3]);
  });

  test("takes a whole answer whatever follows it, together or later, and asks next over a new connection", async () => {
    for (const rest of ["\r\n", "x", withLength("another")]) {
      for (const isTogether of [true, false]) {
        const { origin, sockets, connections } = await serving((socket, { connection }) => {
          if (connection > 1) socket.write(withLength("{}"));
          else if (isTogether) socket.write(withLength("{}") + rest);
          else socket.write(withLength("{}"), () => setTimeout(() => socket.write(rest), 20));
        });
        const answer = await origin.post("/", "{}", never());
        await until("its connection is closed", () => sockets.size === 0);
        expect(await whole(answer)).toBe("{}");
        expect(await origin.post("/", "{}", never()).then(whole)).toBe("{}");
        expect(connections()).toBe(2);
      }
    }
  });

  test("does not ask again when the server had the request for a while: it may have begun to work on it", async () => {
    const clock = new ManualClock();
    const { origin, connections } = await serving((socket, { request }) => {
      if (request === 1) return socket.write(withLength("{}"));
      clock.advance(1_000);
      return socket.destroy();
    }, clock);
    await origin.post("/", "{}", never()).then(whole);
    expect(await failureOf(origin.post("/", "{}", never()))).toMatchObject({ kind: "transport" });
    expect(connections()).toBe(1);
  });

  test("tells a server that is not there from one that breaks off", async () => {
    const { origin, sockets } = await serving((socket, { connection }) => {
      if (connection === 1) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
      else socket.write("no http at all\r\n\r\n");
    });
    const cut = await origin.post("/", "{}", never());
    for (const socket of sockets) socket.resetAndDestroy();
    expect(await failureOf(cut.bytes(100))).toMatchObject({ kind: "transport" });
    expect(await failureOf(origin.post("/", "{}", never()))).toMatchObject({ kind: "transport" });

    const nobody = new HttpOrigin({ url: "http://127.0.0.1:1", headers: {}, ...errors }, systemClock);
    expect(await failureOf(nobody.post("/", "{}", never()))).toMatchObject({ kind: "connect" });
  });

  test("closes the connection at once when it is aborted, before and during the answer", async () => {
    const { origin, sockets } = await serving((socket, { connection }) => {
      if (connection > 1) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome");
    });
    for (const isBegun of [false, true]) {
      const leaving = new AbortController();
      const asked = origin.post("/", "{}", abortable(leaving.signal));
      const body = isBegun ? (await asked).bytes(1_000) : asked;
      await until("the server has the request", () => sockets.size === 1);
      const reason = new Error("left");
      leaving.abort(reason);
      expect(await failureOf(body)).toBe(reason as TestError);
      await until("the server sees it go", () => sockets.size === 0);
    }
    const before = AbortSignal.abort(new Error("never sent"));
    expect((await failureOf(origin.post("/", "{}", abortable(before))))?.message).toBe("never sent");
    expect(sockets.size).toBe(0);
  });

  test("says whether anything was sent before it was aborted", async () => {
    let seen = 0;
    const { origin } = await serving((socket, { request }) => {
      seen++;
      if (request === 1) socket.write(withLength("{}"));
    });
    let unsent = 0;
    const ask = () => {
      const leaving = new AbortController();
      const abort = { ...abortable(leaving.signal), unsent: () => unsent++ };
      const asked = failureOf(origin.post("/", "{}", abort));
      return { asked, leave: () => leaving.abort(new Error("left")) };
    };
    const first = ask();
    first.leave();
    expect((await first.asked)?.message).toBe("left");
    expect(unsent).toBe(1);
    await whole(await origin.post("/", "{}", never()));
    // The connection is kept, but what is queued for the end of the turn has not been sent yet.
    const second = ask();
    second.leave();
    expect((await second.asked)?.message).toBe("left");
    expect(unsent).toBe(2);
    await whole(await origin.post("/", "{}", never()));
    const third = ask();
    await until("the server has it", () => seen === 3);
    third.leave();
    expect((await third.asked)?.message).toBe("left");
    expect(unsent).toBe(2);
  });

  test("an answer with another status than 2xx becomes the error that its user makes of it", async () => {
    const { origin, connections } = await serving((socket, { request }) => {
      if (request === 1) socket.write("HTTP/1.1 429 Slow down\r\ncontent-length: 7\r\n\r\nlater x");
      else socket.write(withLength("{}"));
    });
    const error = await failureOf(origin.post("/", "{}", never()));
    expect([error?.kind, error?.message]).toEqual(["status", "429 later x"]);
    // Its connection is as good as any other.
    expect(await origin.post("/", "{}", never()).then(whole)).toBe("{}");
    expect(connections()).toBe(1);
  });

  test("refuses a body larger than was asked for, told in advance or not", async () => {
    const { origin } = await serving((socket, { request }) => {
      if (request === 1) socket.write(withLength("x".repeat(1_000)));
    });
    const answer = await origin.post("/", "{}", never());
    expect(await failureOf(answer.bytes(10))).toMatchObject({ kind: "too_large" });

    const endless = await serving((socket) => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      const more = () => socket.writable && socket.write("y".repeat(10_000), more);
      more();
    });
    const stream = await endless.origin.post("/", "{}", never());
    expect(await failureOf(stream.bytes(100_000))).toMatchObject({ kind: "too_large" });
    await until("the endless one is broken off", () => endless.sockets.size === 0);
  });

  test("reads no further than its reader wants", async () => {
    let written = 0;
    const { origin } = await serving((socket) => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      const block = Buffer.alloc(1 << 16, 120);
      const more = () => {
        while (written < 1 << 27 && socket.writable) {
          written += block.length;
          if (!socket.write(block)) {
            socket.once("drain", more);
            return;
          }
        }
        socket.end();
      };
      more();
    });
    const answer = await origin.post("/", "{}", never());
    let read = 0;
    let end: (how: string) => void = () => {};
    const ended = new Promise<string>((resolve) => {
      end = resolve;
    });
    const flow = answer.pipe({
      piece(bytes) {
        read += bytes.length;
        if (read < 1 << 20) return;
        flow.pause();
      },
      flush() {},
      end: () => end("end"),
      failed: (error) => end(String(error)),
    });
    flow.resume();
    await until("a megabyte is read", () => read >= 1 << 20);
    // What the system's buffers take is a few megabytes; the rest has to wait.
    let before = -1;
    await until("the server is held up", async () => {
      const settled = before === written;
      before = written;
      await Bun.sleep(50);
      return settled;
    });
    expect(written).toBeLessThan(1 << 26);
    const drain = setInterval(() => flow.resume(), 1);
    expect(await ended).toBe("end");
    clearInterval(drain);
    expect(read).toBe(1 << 27);
  });

  test("keeps the connection of an answer that its reader has left, if that ends soon", async () => {
    const { origin, connections, sockets } = await serving((socket, { request }) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n");
      if (request === 1) setTimeout(() => socket.write("4\r\nmore\r\n0\r\n\r\n"), 20);
    });
    const seen: string[] = [];
    const leaveAfterFirst = (answer: Answer) =>
      new Promise<void>((resolve) => {
        const flow = answer.pipe({
          piece(bytes) {
            seen.push(Buffer.from(bytes).toString());
            flow.leave();
            resolve();
          },
          flush() {},
          end() {},
          failed() {},
        });
        flow.resume();
      });
    await leaveAfterFirst(await origin.post("/", "{}", never()));
    await Bun.sleep(100);
    await leaveAfterFirst(await origin.post("/", "{}", never()));
    expect([seen, connections()]).toEqual([["done", "done"], 1]);
    // The second one never ends.
    await until("it is given up", () => sockets.size === 0);
  });

  test("a header cannot smuggle another one in", () => {
    const headers = { authorization: "Bearer a\r\nx: y" };
    const options = { url: "http://127.0.0.1:1", headers, ...errors };
    expect(() => new HttpOrigin(options, systemClock)).toThrow("authorization");
  });
});
