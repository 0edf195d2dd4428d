import { gunzipSync, gzipSync } from "node:zlib";
import { ServiceError } from "@model-gateway/gateway/kernel/errors.ts";
import { Hosts, isLoopbackName } from "@model-gateway/gateway/transports/hosts.ts";
import { inflated } from "@model-gateway/gateway/transports/rest/runner.ts";
import { hostProblem } from "@model-gateway/protocol/host.ts";
import { HttpParseError, ResponseParser } from "../../../packages/wire/src/client/response-parser.ts";
import { ChunkDecoder } from "../../../packages/wire/src/http/chunks.ts";
import { ClientAddress } from "../../../packages/wire/src/http/client-address.ts";
import { isNetwork, Networks } from "../../../packages/wire/src/http/networks.ts";
import { BadRequest } from "../../../packages/wire/src/http/request.ts";
import { Router } from "../../../packages/wire/src/http/router.ts";
import { checkBeginning, RequestHead } from "../../../packages/wire/src/server/request-head.ts";
import { webSocketHandshake } from "../../../packages/wire/src/websocket/handshake.ts";
import { inPieces } from "../mutations.ts";
import { type FuzzedParser, holds, orRefused, REFUSED, same } from "../parser.ts";

const proxies = new Networks(["127.0.0.1"]);
const HEAD_WORDS = [
  "\r\n",
  "\n",
  "Content-Length: 5\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Host: a\r\n",
  "HTTP/1.0",
  "http://a/",
  "Expect: 100-continue\r\n",
  "Connection: close\r\n",
  " : ",
  "\t",
  "%00",
  "*",
];

/** Header lines the slow way. */
function headersOf(lines: string): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of lines.split("\r\n").filter(Boolean)) {
    const at = line.indexOf(":");
    const name = line.slice(0, at).toLowerCase();
    const value = line.slice(at + 1).replace(/^[ \t]+|[ \t]+$/g, "");
    headers.set(name, headers.has(name) ? `${headers.get(name)}, ${value}` : value);
  }
  return headers;
}

export const requestHead: FuzzedParser = {
  name: "request-head",
  seeds: [
    "GET / HTTP/1.1\r\nHost: localhost:8080\r\n",
    "POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nX-A:  b \r\nX-A: c\r\n",
    "POST http://a:1/x HTTP/1.1\r\nHost: [::1]:1\r\nTransfer-Encoding: chunked\r\nConnection: close, x\r\n",
    "OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n",
  ],
  words: HEAD_WORDS,
  check(bytes) {
    const text = bytes.toString("latin1");
    const head = orRefused([BadRequest], () => new RequestHead(text));
    if (head === REFUSED) return;
    const lines = text.slice(text.indexOf("\r\n") + 2);
    for (const [name, value] of headersOf(lines)) same(`header ${name}`, head.header(name), value);
    holds("a path begins with a slash", head.path.startsWith("/"));
    holds("framing is said once", !(head.isChunked && head.contentLength !== null));
    holds(
      "a length is a whole number",
      head.contentLength === null || Number.isSafeInteger(head.contentLength),
    );
    // What is accepted in the end is not refused on the way.
    const whole = Buffer.concat([bytes, Buffer.from("\r\n")]);
    for (let end = 1; end <= whole.length; end++) checkBeginning(whole.subarray(0, end));
  },
};

class Collected {
  readonly pieces: Buffer[] = [];
  piece(bytes: Buffer): void {
    this.pieces.push(Buffer.from(bytes));
  }
  malformed(reason: string): never {
    throw new BadRequest(400, reason);
  }
  get text(): string {
    return Buffer.concat(this.pieces).toString("latin1");
  }
}

function dechunked(pieces: readonly Buffer[], isLenient: boolean) {
  const collected = new Collected();
  const decoder = new ChunkDecoder(collected, { isLenient });
  const read = orRefused([BadRequest], () => {
    let used = 0;
    for (const piece of pieces) if (!decoder.isDone) used += decoder.feed(piece, 0);
    return { used, isDone: decoder.isDone };
  });
  return read === REFUSED ? REFUSED : { ...read, text: collected.text };
}

const CHUNK = /^([\da-f]{1,12})(;[^\r\n]*)?\r\n/i;
const TRAILERS = /^(?:[!#$%&'*+\-.^_`|~\w]+:[\t -~\x80-\xff]*\r\n)*\r\n/;

/** The same the slow way; null when it is not a whole chunked body. */
function dechunkedSlowly(bytes: Buffer): { used: number; text: string } | null {
  const all = bytes.toString("latin1");
  let text = "";
  for (let at = 0; ; ) {
    const line = CHUNK.exec(all.slice(at));
    if (!line) return null;
    at += line[0].length;
    const size = Number.parseInt(line[1]!, 16);
    if (size === 0) {
      const end = TRAILERS.exec(all.slice(at));
      return end && { used: at + end[0].length, text };
    }
    text += all.slice(at, at + size);
    at += size;
    if (all.slice(at, at + 2) !== "\r\n") return null;
    at += 2;
  }
}

export const chunks: FuzzedParser = {
  name: "chunks",
  seeds: [
    "5\r\nhello\r\n0\r\n\r\n",
    '5;a=b;c="d"\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\nGET / HTTP/1.1\r\n',
    "00000A\r\n0123456789\r\n0\r\n\r\n",
  ],
  words: ["\r\n", "\n", "0\r\n", "0\r\n\r\n", ";", 'a="', "ffffffffffff", "5", " ", "X: y\r\n"],
  check(bytes, chance) {
    for (const isLenient of [false, true]) {
      const whole = dechunked([Buffer.from(bytes)], isLenient);
      const split = dechunked(inPieces(bytes, chance), isLenient);
      same("the same bytes in pieces", split, whole);
    }
    const strict = dechunked([Buffer.from(bytes)], false);
    if (strict !== REFUSED && strict.isDone)
      same("the slow reading", dechunkedSlowly(bytes), { used: strict.used, text: strict.text });
    // Whoever is lenient reads the same from what is right.
    if (strict !== REFUSED && strict.isDone)
      same("lenient reading", dechunked([Buffer.from(bytes)], true), strict);
  },
};

function answerIn(pieces: readonly Buffer[]) {
  const told: unknown[] = [];
  const body = new Collected();
  const parser = new ResponseParser({
    headed: (head) => void told.push(head),
    piece: (bytes) => body.piece(bytes),
    end: () => void told.push("end"),
  });
  const read = orRefused([HttpParseError], () => {
    for (const piece of pieces) parser.feed(piece);
    const { isDone, isReusable } = parser;
    return { isDone, isReusable, isWhole: parser.closed() };
  });
  return read === REFUSED ? REFUSED : { ...read, told, text: body.text };
}

export const response: FuzzedParser = {
  name: "response",
  seeds: [
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.0 500\r\nRetry-After: 5\r\n\r\nuntil the end",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 200 OK\nContent-Type: text/plain\n\nbare",
  ],
  words: [...HEAD_WORDS, "HTTP/1.1 103 Early\r\n\r\n", "0\r\n\r\n"],
  check(bytes, chance) {
    same("the same bytes in pieces", answerIn(inPieces(bytes, chance)), answerIn([Buffer.from(bytes)]));
  },
};

const router = new Router([
  { method: "GET", path: "/v1/models" },
  { method: "GET", path: "/v1/models/{model}" },
  { method: "POST", path: "/a/{b}/c/{d}" },
]);
const hosts = new Hosts({ host: "127.0.0.1", publicUrl: "https://gateway.example/base" });
const LOCAL = /^((.*\.)?localhost|127(\.\d{1,3}){3}|\[?::1\]?)\.?$/s;

/** Small readers of one text: hosts, paths, addresses of clients, the headers of a handshake. */
export const names: FuzzedParser = {
  name: "names",
  seeds: [
    "localhost:8080",
    "[::1]:8080",
    "gateway.example.",
    "169.254.169.254",
    "metadata.google.internal",
    "/v1/models/a%2Fb",
    "/a/%c3%28/c/d",
    "10.0.0.1, 127.0.0.1",
    "fe80::1%eth0",
    "0xa9fea9fe",
    "websocket, h2c",
    "dGhlIHNhbXBsZSBub25jZQ==",
  ],
  words: [
    "%2e",
    "%00",
    "..",
    ":",
    "[",
    "]",
    "@",
    "//",
    "\\",
    "localhost",
    ".localhost",
    "127.0.0.1",
    "::ffff:",
    ", ",
    "13",
  ],
  check(bytes) {
    const text = bytes.toString("latin1");
    const header = (name: string) => (name === "x-forwarded-for" || name === "host" ? text : null);
    const refusal = hosts.refusal({ header });
    if (isLoopbackName(text)) holds("names of this machine are answered", refusal === null);
    const plain = text.trim().toLowerCase().replace(/:\d*$/, "");
    if (isLoopbackName(text)) holds(`${JSON.stringify(text)} is this machine's name`, LOCAL.test(plain));
    const address = new ClientAddress({ header, isHttp10: false, remoteAddress: "127.0.0.1" }, proxies).ip;
    holds("an address is never empty", address !== "");
    if (isNetwork(text))
      holds("a network has its own address", new Networks([text]).has(text.split("/")[0]!));
    const problem = hostProblem(text);
    holds("a problem is said in words", problem === null || problem.length > 3);
    if (/^\[?(::ffff:)?169\.254\.\d+\.\d+\]?$/i.test(text)) holds("link-local is refused", problem !== null);
    for (const method of ["GET", "POST"]) {
      const found = router.find(method, text);
      if (found) for (const value of Object.values(found.path)) holds("a parameter is a text", value !== "");
      router.methodsOf(text);
    }
    const asked = {
      upgrade: "websocket",
      connection: "Upgrade",
      "sec-websocket-version": "13",
      "sec-websocket-key": text,
    };
    const shaken = webSocketHandshake(
      { method: "GET", header: (name) => asked[name as keyof typeof asked] ?? null },
      text,
    );
    if (shaken?.accepted)
      holds("nothing is added to the answer's head", shaken.head.split("\r\n").length <= 7);
  },
};

const INFLATED_MAX = 16 * 1024;

export const gzip: FuzzedParser = {
  name: "gzip",
  seeds: [
    gzipSync("{}"),
    gzipSync("x".repeat(3_000)),
    gzipSync(Buffer.alloc(100_000)),
    Buffer.concat([gzipSync("a"), gzipSync("b")]),
  ],
  words: [Buffer.from([0x1f, 0x8b, 8, 0]), Buffer.from([0, 0, 0, 0]), Buffer.from([0xff])],
  async check(bytes) {
    const read = await inflated(bytes, "gzip", INFLATED_MAX).catch((error: unknown) => {
      if (error instanceof ServiceError) return REFUSED;
      throw error;
    });
    if (read === REFUSED) return;
    holds("no more than was allowed", (read as Buffer).length <= INFLATED_MAX);
    same("inflated", (read as Buffer).toString("latin1"), gunzipSync(bytes).toString("latin1"));
  },
};
