import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import http from "node:http";
import { until } from "@model-gateway/testing/until.ts";
import { StreamedReply } from "../../src/http/reply.ts";
import type { AnyReply } from "../../src/server/connection.ts";
import type { IncomingRequest } from "../../src/server/incoming-request.ts";
import { echo, TestServer, TestSource, text } from "./support.ts";

let server: TestServer;
function answer(request: IncomingRequest): AnyReply | Promise<AnyReply> {
  if (request.path === "/never") return new Promise(() => {});
  if (request.path === "/refused") return text("no", 401);
  if (request.path !== "/stream") return echo(request);
  const source = new TestSource((writer) => {
    writer.write("one ");
    setImmediate(() => writer.end(Buffer.from("two")));
  });
  return new StreamedReply({ status: 200, contentType: "text/plain", requestId: "r" }, source);
}
beforeAll(() => {
  server = new TestServer(answer);
});
afterAll(() => server.stop());

describe("node's client", () => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  afterAll(() => agent.destroy());

  function ask(
    path: string,
    options: http.RequestOptions = {},
    write: (request: http.ClientRequest) => void = (request) => void request.end(),
  ): Promise<{ status: number; body: string }> {
    return new Promise((resolve, reject) => {
      const request = http.request(`${server.url}${path}`, { agent, ...options }, (response) => {
        const pieces: Buffer[] = [];
        response.on("data", (piece) => pieces.push(piece));
        response.on("end", () =>
          resolve({ status: response.statusCode!, body: Buffer.concat(pieces).toString() }),
        );
        response.on("error", reject);
      });
      request.on("error", reject);
      write(request);
    });
  }

  test("keeps its connection through many requests", async () => {
    for (let i = 0; i < 50; i++) expect((await ask(`/${i}`)).body).toBe(`GET /${i}?\n`);
    expect(server.listener.connectionCount).toBe(1);
  });
  test("uploads in chunks, and by length", async () => {
    const piece = "x".repeat(50_000);
    const inChunks = await ask("/x", { method: "POST" }, (request) => {
      for (let i = 0; i < 20; i++) request.write(piece);
      request.end();
    });
    expect(inChunks.body.length).toBe("POST /x?\n".length + 20 * piece.length);
    const headers = { "content-length": piece.length };
    const whole = await ask("/x", { method: "POST", headers }, (request) => void request.end(piece));
    expect(whole.body).toBe(`POST /x?\n${piece}`);
  });
  test("waits for 100-continue", async () => {
    const headers = { expect: "100-continue", "content-length": 5 };
    const { body } = await ask("/x", { method: "PUT", headers }, (request) => {
      request.on("continue", () => request.end("hello"));
      request.flushHeaders();
    });
    expect(body).toBe("PUT /x?\nhello");
  });
  test("reads streams, HEAD and refusals", async () => {
    expect((await ask("/stream")).body).toBe("one two");
    expect(await ask("/x", { method: "HEAD" })).toEqual({ status: 200, body: "" });
    expect(
      await ask("/refused", { method: "POST" }, (request) => void request.end("x".repeat(1_000))),
    ).toEqual({
      status: 401,
      body: "no",
    });
  });
  test("aborts, and the handler hears of it", async () => {
    const seen = server.requests.length;
    const failed = ask("/never", { agent: false }, (request) => {
      request.end();
      void until("the request", () => server.requests.length > seen).then(() => request.destroy());
    }).catch(() => "aborted");
    expect(await failed).toBe("aborted");
    await until("the abort", () => server.requests[seen]!.signal.aborted);
  });
});

test("fetch", async () => {
  const body = new Blob(["x".repeat(1_000_000)]);
  const [large, stream] = await Promise.all([
    fetch(`${server.url}/x`, { method: "POST", body }),
    fetch(`${server.url}/stream`),
  ]);
  expect((await large.text()).length).toBe(1_000_009);
  expect(await stream.text()).toBe("one two");
});

/** Not everywhere installed; what it would show is shown by node's client too. */
describe.if(Bun.which("curl") !== null)("curl", () => {
  async function curl(path: string, options: string[], input = ""): Promise<string> {
    const stdin = new Blob([input]);
    const command = ["curl", "-sS", "--max-time", "15", ...options, `${server.url}${path}`];
    const process = Bun.spawn(command, { stdin, stdout: "pipe", stderr: "pipe" });
    const [output, errors] = await Promise.all([
      new Response(process.stdout).text(),
      new Response(process.stderr).text(),
    ]);
    expect([await process.exited, errors]).toEqual([0, ""]);
    return output;
  }
  const large = "y".repeat(3_000_000);
  test("sends a large body by length, with its expectation", async () => {
    expect(await curl("/x", ["--data-binary", "@-", "-H", "Expect: 100-continue"], large)).toBe(
      `POST /x?\n${large}`,
    );
  });
  test("sends one in chunks", async () => {
    expect(await curl("/x", ["-T", "-"], large)).toBe(`PUT /x?\n${large}`);
  });
  test("speaks HTTP/1.0, asks for heads, reads streams", async () => {
    expect(await curl("/x", ["--http1.0"])).toBe("GET /x?\n");
    expect(await curl("/stream", ["--http1.0"])).toBe("one two");
    expect(await curl("/x", ["-I"])).toContain("content-length: 9");
    expect(await curl("/stream", [])).toBe("one two");
  });
});
