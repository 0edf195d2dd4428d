import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { StreamedReply } from "../../src/http/reply.ts";
import type { AnyReply } from "../../src/server/connection.ts";
import type { IncomingRequest } from "../../src/server/incoming-request.ts";
import { echo, RawClient, TestServer, TestSource } from "./support.ts";

let server: TestServer;
/** Whole, later, or streamed, by the request's own wish. */
async function answer(request: IncomingRequest): Promise<AnyReply> {
  if (request.search === "later") await new Promise((resolve) => setImmediate(resolve));
  const whole = await echo(request);
  if (request.search !== "streamed") return whole;
  const source = new TestSource((writer) => {
    writer.write((whole.body as Buffer).subarray(0, 5));
    writer.end((whole.body as Buffer).subarray(5));
  });
  return new StreamedReply(whole.head, source);
}
beforeAll(() => {
  server = new TestServer(answer);
});
afterAll(() => server.stop());

interface Sent {
  bytes: Buffer;
  /** What comes back. */
  echoed: string;
}

const extension = fc.constantFrom("", ";a", ";a=b", ';a="b; c"');
const chunk = fc.record({ data: fc.uint8Array({ minLength: 1, maxLength: 300 }), extension });
const body = fc.oneof(
  fc.constant(null),
  fc.uint8Array({ maxLength: 2_000 }).map((data) => ({ kind: "length" as const, data: Buffer.from(data) })),
  fc
    .record({ chunks: fc.array(chunk, { maxLength: 8 }), trailer: fc.constantFrom("", "x: y\r\n") })
    .map((parts) => ({ kind: "chunked" as const, ...parts })),
);
const request: fc.Arbitrary<Sent> = fc
  .record({
    body,
    search: fc.constantFrom("now", "later", "streamed"),
    before: fc.constantFrom("", "", "\r\n"),
    id: fc.nat(),
  })
  .map(({ body, search, before, id }) => {
    const line = `${before}POST /${id}?${search} HTTP/1.1\r\nHost: a\r\n`;
    const echoed = `POST /${id}?${search}\n`;
    if (body === null) return { bytes: Buffer.from(`${line}\r\n`), echoed };
    if (body.kind === "length") {
      const head = Buffer.from(`${line}Content-Length: ${body.data.length}\r\n\r\n`);
      return { bytes: Buffer.concat([head, body.data]), echoed: echoed + body.data.toString("latin1") };
    }
    const chunks = body.chunks.flatMap(({ data, extension }) => [
      Buffer.from(`${data.length.toString(16)}${extension}\r\n`),
      data,
      Buffer.from("\r\n"),
    ]);
    const data = Buffer.concat(body.chunks.map((each) => each.data)).toString("latin1");
    const head = Buffer.from(`${line}Transfer-Encoding: chunked\r\n\r\n`);
    const end = Buffer.from(`0\r\n${body.trailer}\r\n`);
    return { bytes: Buffer.concat([head, ...chunks, end]), echoed: echoed + data };
  });

function cut(bytes: Buffer, positions: readonly number[]): Buffer[] {
  const at = [...new Set(positions.map((position) => position % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...at]
    .map((from, i) => bytes.subarray(from, at[i] ?? bytes.length))
    .filter((each) => each.length > 0);
}

async function converse(requests: readonly Sent[], pieces: readonly Buffer[]): Promise<void> {
  const client = await RawClient.connect(server.port);
  try {
    const sent = client.sendPieces(pieces);
    for (const { echoed } of requests) {
      const { status, body } = await client.answer();
      expect(status).toBe(200);
      expect(body.toString("latin1")).toBe(echoed);
    }
    await sent;
    expect(client.bytes.length).toBe(0);
  } finally {
    client.leave();
  }
}

describe("whatever the cuts", () => {
  const text = (bytes: string, echoed: string): Sent => ({ bytes: Buffer.from(bytes), echoed });
  const CONVERSATION = [
    text("POST /1?now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "POST /1?now\nhello"),
    text(
      "\r\nPOST /2?streamed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nt: u\r\n\r\n",
      "POST /2?streamed\nabc0123456789",
    ),
    text("GET /3?later HTTP/1.1\r\nHost: a\r\n\r\n", "GET /3?later\n"),
  ];
  const bytes = Buffer.concat(CONVERSATION.map((each) => each.bytes));

  test("a conversation in two writes, at every position", async () => {
    for (let at = 1; at < bytes.length; at++) await converse(CONVERSATION, cut(bytes, [at]));
  });
  test("a conversation byte by byte", async () => {
    await converse(CONVERSATION, cut(bytes, [...bytes.keys()]));
  });
  test("any requests, cut anywhere, are answered in order with what was sent", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { minLength: 1, maxLength: 12 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        (requests, positions) =>
          converse(requests, cut(Buffer.concat(requests.map((each) => each.bytes)), positions)),
      ),
      { numRuns: 200 },
    );
  });
});

describe("garbage", () => {
  /** Ends in an answer that says what is wrong, or waits for more; then our leaving ends it. */
  async function survives(bytes: Buffer): Promise<void> {
    const client = await RawClient.connect(server.port);
    client.send(bytes);
    client.end();
    await client.ended();
    for (const [, status] of client.bytes.toString("latin1").matchAll(/HTTP\/1\.1 (\d+)/g))
      expect(Number(status)).toBeOneOf([200, 400, 413, 414, 417, 426, 431, 501, 505]);
    client.leave();
  }
  const token = fc.constantFrom(
    ..."GET |POST |/|HTTP/1.1|\r\n|\r\n\r\n|\n|\r|Host: a|Content-Length: |Transfer-Encoding: chunked|5|0|ffffffff|;|:| |\t|\0|\xff|Expect: 100-continue|Upgrade: websocket|Connection: close".split(
      "|",
    ),
  );
  const jumble = fc.array(token, { maxLength: 40 }).map((parts) => Buffer.from(parts.join(""), "latin1"));
  const noise = fc.uint8Array({ maxLength: 3_000 }).map((bytes) => Buffer.from(bytes));
  /** Something sensible with a few bytes changed. */
  const damaged = fc
    .tuple(request, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }))
    .map(([{ bytes }, changes]) => {
      const copy = Buffer.from(bytes);
      for (const [at, byte] of changes) copy[at % copy.length] = byte;
      return copy;
    });

  test("never does more than end its own connection", async () => {
    await fc.assert(fc.asyncProperty(fc.oneof(jumble, noise, damaged), survives), { numRuns: 400 });
    await server.untilEmpty();
    await converse(
      [{ bytes: Buffer.from("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), echoed: "GET /?\n" }],
      [Buffer.from("GET / HTTP/1.1\r\nHost: a\r\n\r\n")],
    );
  });
});
