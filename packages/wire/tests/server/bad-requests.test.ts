import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { HEAD_BYTES_MAX } from "../../src/server/request-head.ts";
import { echo, TestServer, text } from "./support.ts";

const HOST = "Host: a\r\n";
const post = (headers: string, body = "") => `POST /x HTTP/1.1\r\n${HOST}${headers}\r\n${body}`;
const get = (headers: string) => `GET /x HTTP/1.1\r\n${headers}\r\n`;
const chunked = (body: string) => post("Transfer-Encoding: chunked\r\n", body);
/** What a smuggled request would look like behind the bad one. */
const SMUGGLED = `GET /smuggled HTTP/1.1\r\n${HOST}\r\n`;

const BAD: [what: string, status: number, request: string][] = [
  ["no HTTP at all", 400, "hello\r\n\r\n"],
  ["no version", 400, `GET /x\r\n${HOST}\r\n`],
  ["HTTP/1.2", 505, `GET /x HTTP/1.2\r\n${HOST}\r\n`],
  ["the preface of HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ["a TLS greeting", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
  ["a lower-case protocol", 400, `GET /x http/1.1\r\n${HOST}\r\n`],
  ["two spaces in the request line", 400, `GET  /x HTTP/1.1\r\n${HOST}\r\n`],
  ["a tab in the request line", 400, `GET\t/x HTTP/1.1\r\n${HOST}\r\n`],
  ["a space after the version", 400, `GET /x HTTP/1.1 \r\n${HOST}\r\n`],
  ["a space before the method", 400, ` GET /x HTTP/1.1\r\n${HOST}\r\n`],
  ["a space in the target", 400, `GET /a b HTTP/1.1\r\n${HOST}\r\n`],
  ["a character beyond ASCII in the target", 400, `GET /\xe4 HTTP/1.1\r\n${HOST}\r\n`],
  ["a method that is no token", 400, `G(T /x HTTP/1.1\r\n${HOST}\r\n`],
  ["a method without end", 400, `${"A".repeat(33)} /x HTTP/1.1\r\n${HOST}\r\n`],
  ["a target without a slash", 400, `GET x HTTP/1.1\r\n${HOST}\r\n`],
  ["an authority as the target", 400, `CONNECT a:443 HTTP/1.1\r\n${HOST}\r\n`],
  [
    "CONNECT to a path, with what may be a body or a tunnel's",
    400,
    `CONNECT /x HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello`,
  ],
  ["a star that is no OPTIONS", 400, `GET * HTTP/1.1\r\n${HOST}\r\n`],
  ["another scheme", 400, `GET ftp://a/x HTTP/1.1\r\n${HOST}\r\n`],
  ["line feeds only", 400, "GET /x HTTP/1.1\nHost: a\n\n"],
  ["a line feed only after the request line", 400, `GET /x HTTP/1.1\n${HOST}\r\n`],
  ["a line feed only after a header", 400, get("Host: a\nX: b\r\n")],
  ["a carriage return in a value", 400, get(`${HOST}X: a\rb\r\n`)],
  ["a zero byte in a value", 400, get(`${HOST}X: a\0b\r\n`)],
  ["a bell in a value", 400, get(`${HOST}X: \x07\r\n`)],
  ["a space before the colon", 400, post("Content-Length : 5\r\n", "hello")],
  ["a tab before the colon", 400, post("Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n")],
  ["a folded header", 400, get(`${HOST}X: a\r\n b\r\n`)],
  ["a folded transfer-encoding", 400, post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n")],
  ["a first header that is folded", 400, get(` X: a\r\n${HOST}`)],
  ["a header without a colon", 400, get(`${HOST}nonsense\r\n`)],
  ["a header without a name", 400, get(`${HOST}: a\r\n`)],
  ["a name that is no token", 400, get(`${HOST}a b: c\r\n`)],
  ["a name beyond ASCII", 400, get(`${HOST}\xe4: c\r\n`)],
  ["no host", 400, get("X: a\r\n")],
  ["two hosts", 400, get("Host: a\r\nHost: b\r\n")],
  ["two hosts of one name", 400, get("Host: a\r\nhost: a\r\n")],
  ["two hosts in HTTP/1.0", 400, "GET /x HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"],

  ["a blank in the host", 400, get("Host: a b\r\n")],
  ["a tab in the host", 400, get("Host: a\tb\r\n")],
  ["a slash in the host", 400, get("Host: a/b\r\n")],
  ["a backslash in the host", 400, get("Host: a\\b\r\n")],
  ["hosts in a list", 400, get("Host: a,b\r\n")],
  ["a user in the host", 400, get("Host: u@a\r\n")],
  ["a query in the host", 400, get("Host: a?b\r\n")],
  ["a fragment in the host", 400, get("Host: a#b\r\n")],
  ["quotes in the host", 400, get('Host: "a"\r\n')],
  ["a host beyond ASCII", 400, get("Host: \xe4\r\n")],
  ["a scheme in the host", 400, get("Host: http://a\r\n")],
  ["a port that is no number", 400, get("Host: a:b\r\n")],
  ["two ports", 400, get("Host: a:1:2\r\n")],
  ["an address without its bracket", 400, get("Host: [::1\r\n")],
  ["a bracket in the middle", 400, get("Host: a[::1]\r\n")],
  ["a list of hosts in HTTP/1.0", 400, "GET /x HTTP/1.0\r\nHost: a,b\r\n\r\n"],
  ["hosts in a list in the target", 400, `GET http://a,b/x HTTP/1.1\r\n${HOST}\r\n`],
  ["a user in the target", 400, `GET http://u:p@b/x HTTP/1.1\r\n${HOST}\r\n`],
  ["a fragment", 400, `GET /x?a#b?c HTTP/1.1\r\n${HOST}\r\n`],
  ["a fragment in a path", 400, `GET /x#/../y HTTP/1.1\r\n${HOST}\r\n`],
  ["a fragment of a URL", 400, `GET http://b/x#c HTTP/1.1\r\n${HOST}\r\n`],
  ["a fragment behind a host", 400, `GET http://b#c HTTP/1.1\r\n${HOST}\r\n`],

  ["two lengths", 400, post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")],
  ["two equal lengths", 400, post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")],
  ["a list of lengths", 400, post("Content-Length: 5, 5\r\n", "hello")],
  ["a negative length", 400, post("Content-Length: -5\r\n")],
  ["a length with a plus", 400, post("Content-Length: +5\r\n", "hello")],
  ["a hexadecimal length", 400, post("Content-Length: 0x5\r\n", "hello")],
  ["a fraction", 400, post("Content-Length: 5.0\r\n", "hello")],
  ["an exponent", 400, post("Content-Length: 5e0\r\n", "hello")],
  ["an empty length", 400, post("Content-Length:\r\n")],
  ["a length that no number holds", 400, post(`Content-Length: ${"9".repeat(20)}\r\n`)],
  ["digits of another script", 400, post("Content-Length: \xb2\r\n")],
  ["a length and a no-break space", 400, post("Content-Length: 5\xa0\r\n", "hello")],
  ["a no-break space and a length", 400, post("Content-Length: \xa05\r\n", "hello")],

  ["a length and chunks", 400, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")],
  ["chunks and a length", 400, post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")],
  ["a length and another encoding", 501, post("Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n")],
  ["an encoding that ends in chunked", 501, post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n")],
  ["chunked in quotes", 501, post('Transfer-Encoding: "chunked"\r\n', "0\r\n\r\n")],
  ["chunked with a comma", 501, post("Transfer-Encoding: chunked,\r\n", "0\r\n\r\n")],
  ["chunked twice", 501, post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n")],
  ["chunked in two lines", 501, post("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n")],
  ["identity behind chunked", 501, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n")],
  ["compressed chunks", 501, post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")],
  ["chunked with a parameter", 501, post("Transfer-Encoding: chunked;a=b\r\n", "0\r\n\r\n")],
  ["an empty encoding", 501, post("Transfer-Encoding:\r\n")],
  ["chunked and a no-break space", 501, post("Transfer-Encoding: chunked\xa0\r\n", "0\r\n\r\n")],
  ["chunked and a vertical tab", 400, post("Transfer-Encoding: chunked\x0b\r\n", "0\r\n\r\n")],
  ["chunks in HTTP/1.0", 400, "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
  ["another expectation", 417, post("Expect: 200-maybe\r\nContent-Length: 5\r\n", "hello")],

  ["a chunk without a size", 400, chunked("\r\nhello\r\n0\r\n\r\n")],
  ["a size that is no number", 400, chunked("xyz\r\n")],
  ["a negative size", 400, chunked("-1\r\n")],
  ["a size with 0x", 400, chunked("0x5\r\nhello\r\n0\r\n\r\n")],
  ["a size that no number holds", 400, chunked(`${"f".repeat(17)}\r\n`)],
  ["a size that wraps around", 400, chunked("10000000000000005\r\nhello\r\n0\r\n\r\n")],
  ["a space before the size", 400, chunked(" 5\r\nhello\r\n0\r\n\r\n")],
  ["a space after the size", 400, chunked("5 \r\nhello\r\n0\r\n\r\n")],
  ["a size with an underscore", 400, chunked("1_0\r\n")],
  ["a line feed only after the size", 400, chunked("5\nhello\r\n0\r\n\r\n")],
  ["a carriage return only after the size", 400, chunked("5\rhello\r\n0\r\n\r\n")],
  ["a line feed only in an extension", 400, chunked("5;a\nhello\r\n0\r\n\r\n")],
  ["a carriage return in an extension", 400, chunked("5;a\rb\r\nhello\r\n0\r\n\r\n")],
  ["an extension without end", 400, chunked(`5;${"a".repeat(9_000)}`)],
  ["a chunk that is longer than it says", 400, chunked("4\r\nhello\r\n0\r\n\r\n")],
  ["a chunk that is shorter than it says", 400, chunked("6\r\nhello\r\n0\r\n\r\n")],
  ["a line feed only after the data", 400, chunked("5\r\nhello\n0\r\n\r\n")],
  ["two carriage returns after the data", 400, chunked("5\r\nhello\r\r\n0\r\n\r\n")],
  ["a line feed only at the end", 400, chunked("0\r\n\n")],
  ["a line feed only in a trailer", 400, chunked("0\r\na: b\n\r\n")],
  ["a trailer without a colon", 400, chunked("0\r\nnonsense\r\n\r\n")],
  ["a trailer without a name", 400, chunked("0\r\n: a\r\n\r\n")],
  ["a trailer with a blank in its name", 400, chunked("0\r\na b: c\r\n\r\n")],
  ["a trailer with a blank before the colon", 400, chunked("0\r\na : c\r\n\r\n")],
  ["a folded trailer", 400, chunked("0\r\na: b\r\n c\r\n\r\n")],
  ["a first trailer that is folded", 400, chunked("0\r\n a: b\r\n\r\n")],
  ["a request as a trailer", 400, chunked("0\r\nGET /y HTTP/1.1\r\n\r\n")],
  ["a trailer with a zero byte", 400, chunked("0\r\na: \0\r\n\r\n")],
  ["trailers without end", 400, chunked(`0\r\n${"a: b\r\n".repeat(2_000)}`)],

  ["a head that is too large", 431, get(`${HOST}X: ${"a".repeat(HEAD_BYTES_MAX)}\r\n`)],
  ["many headers that are too large together", 431, get(HOST + "a: b\r\n".repeat(HEAD_BYTES_MAX / 6 + 1))],
  ["a head that is too large and has no end", 431, `GET /x HTTP/1.1\r\n${"a: b\r\n".repeat(11_000)}`],
  ["a target that is too long", 414, `GET /${"a".repeat(HEAD_BYTES_MAX)} HTTP/1.1\r\n${HOST}\r\n`],
  ["a target that has no end", 414, `GET /${"a".repeat(HEAD_BYTES_MAX + 1)}`],
];

const GOOD: [what: string, request: string, answer: string][] = [
  ["nothing but a host", get(HOST), "GET /x?\n"],
  ["an empty host", get("Host:\r\n"), "GET /x?\n"],
  ["a host with a port", get("Host: my_host-1.example:8080\r\n"), "GET /x?\n"],
  ["a host with an empty port", get("Host: a:\r\n"), "GET /x?\n"],
  ["a host that is an address", get("Host: [::1]:80\r\n"), "GET /x?\n"],
  ["an address with its zone", get("Host: [fe80::1%25eth0]\r\n"), "GET /x?\n"],
  ["a host with blanks around it", get("Host:  a\t\r\n"), "GET /x?\n"],
  ["a fragment that is escaped", `GET /x%23y HTTP/1.1\r\n${HOST}\r\n`, "GET /x%23y?\n"],
  ["headers in any case and without spaces", post("cOnTeNt-LeNgTh:5\r\n", "hello"), "POST /x?\nhello"],
  ["blanks around a value", post("Content-Length: \t 5 \t\r\n", "hello"), "POST /x?\nhello"],
  ["leading zeros", post("Content-Length: 0005\r\n", "hello"), "POST /x?\nhello"],
  ["an empty line before the request", `\r\n\r\n${get(HOST)}`, "GET /x?\n"],
  ["a value beyond ASCII", get(`${HOST}X: \xe4\r\n`), "GET /x?\n"],
  ["an empty value", get(`${HOST}X:\r\n`), "GET /x?\n"],
  ["the largest head", get(`${HOST}X: ${"a".repeat(HEAD_BYTES_MAX - 60)}\r\n`), "GET /x?\n"],
  ["very many headers", get(HOST + "a:\r\n".repeat(HEAD_BYTES_MAX / 4 - 100)), "GET /x?\n"],
  ["a URL as the target", `GET http://b:1/x?y=1 HTTP/1.1\r\n${HOST}\r\n`, "GET /x?y=1\n"],
  ["a URL without a path", `GET HTTPS://b HTTP/1.1\r\n${HOST}\r\n`, "GET /?\n"],
  ["a URL with a query only", `GET http://b?y HTTP/1.1\r\n${HOST}\r\n`, "GET /?y\n"],
  ["two question marks", `GET /x?a?b HTTP/1.1\r\n${HOST}\r\n`, "GET /x?a?b\n"],
  ["two slashes", `GET //x HTTP/1.1\r\n${HOST}\r\n`, "GET //x?\n"],
  ["OPTIONS *", `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`, "OPTIONS /*?\n"],
  ["another method", `PROPFIND /x HTTP/1.1\r\n${HOST}\r\n`, "PROPFIND /x?\n"],
  ["HTTP/1.0 without a host", "GET /x HTTP/1.0\r\n\r\n", "GET /x?\n"],
  ["a body with GET", `GET /x HTTP/1.1\r\n${HOST}Content-Length: 2\r\n\r\nhi`, "GET /x?\nhi"],
  ["chunks", chunked("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"), "POST /x?\nhello!"],
  [
    "chunks in any case",
    post("Transfer-Encoding: CHUNKED\r\n", "A\r\n0123456789\r\n0\r\n\r\n"),
    "POST /x?\n0123456789",
  ],
  ["no chunks", chunked("0\r\n\r\n"), "POST /x?\n"],
  ["leading zeros of a size", chunked("00005\r\nhello\r\n000\r\n\r\n"), "POST /x?\nhello"],
  ["extensions", chunked('5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n'), "POST /x?\nhello"],
  ["a trailer of no value", chunked("0\r\na:\r\n\r\n"), "POST /x?\n"],
  ["trailers", chunked("5\r\nhello\r\n0\r\nContent-Length: 9\r\nx: y\r\n\r\n"), "POST /x?\nhello"],
];

describe("the table of requests", () => {
  let server: TestServer;
  beforeAll(() => {
    server = new TestServer(echo);
  });
  afterAll(() => server.stop());

  test.each(BAD)("refused: %s", async (_what, status, request) => {
    const client = await server.connect();
    client.send(request);
    const answer = await client.answer();
    expect(answer.status).toBe(status);
    expect(answer.headers.get("connection")).toBe("close");
    expect(answer.body.length).toBeGreaterThan(1);
    await client.ended();
    // Nothing behind it is taken for another request.
    const seen = server.requests.length;
    client.send(SMUGGLED);
    expect((await client.everything()).length).toBe(0);
    client.leave();
    await server.untilEmpty();
    expect(server.requests.slice(seen)).toEqual([]);
  });

  test.each([
    ["after the request line", "GET /x HTTP/1.1\nHost", "GET /x HTTP/1.1\n"],
    ["after a header", "GET /x HTTP/1.1\r\nHost: a\nX: b", "GET /x HTTP/1.1\r\nHost: a\n"],
    ["behind empty lines", "\r\n\r\nGET /x HTTP/1.1\r\nHost: a\nX", "\r\n\r\nGET /x HTTP/1.1\r\nHost: a\n"],
  ])("refused byte by byte, as soon as it is there: a line feed only %s", async (_where, bytes, refused) => {
    const client = await server.connect();
    for (const byte of bytes) await client.sendPieces([Buffer.from(byte)]);
    expect((await client.answer()).status).toBe(400);
    client.leave();
    // The last byte makes the difference.
    const patient = await server.connect();
    await patient.sendPieces(Array.from(refused.slice(0, -1), (byte) => Buffer.from(byte)));
    patient.send(`\r\n${refused.includes("Host") ? "" : HOST}\r\n`);
    expect((await patient.answer()).status).toBe(200);
    patient.leave();
  });

  test.each(GOOD)("accepted: %s", async (_what, request, body) => {
    const client = await server.connect();
    client.send(request);
    const answer = await client.answer();
    expect(answer.status).toBe(200);
    expect(answer.body.toString("latin1")).toBe(body);
    client.leave();
  });

  test("a bad request in a row ends it: those before are answered, those behind are not", async () => {
    const answers = await server.talk(get(HOST) + get("X: a\r\n") + SMUGGLED);
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 400"]);
    expect(server.requests.at(-1)?.path).toBe("/x");
  });

  test("a bad chunk that comes later: the handler hears of it, the client is told once", async () => {
    const failures: unknown[] = [];
    const waiting = new TestServer(async (request) => {
      try {
        return text(await request.body(100));
      } catch (error) {
        failures.push(error);
        throw error;
      }
    });
    const client = await waiting.connect();
    client.send(chunked("5\r\nhello\r\n"));
    await until("the request is being handled", () => waiting.requests.length === 1);
    client.send("nonsense\r\n");
    const answers = (await client.everything()).toString();
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 400"]);
    expect(failures).toHaveLength(1);
    expect(waiting.requests[0]!.signal.aborted).toBe(true);
    await waiting.stop([`a request failed after its client had left: ${failures[0]}`]);
  });

  test("empty lines without end cost nothing and lead to nothing", async () => {
    const client = await server.connect();
    for (let i = 0; i < 20; i++) await client.sendPieces([Buffer.from("\r\n".repeat(5_000))]);
    client.send(get(HOST));
    expect((await client.answer()).status).toBe(200);
    client.leave();
  });
});
