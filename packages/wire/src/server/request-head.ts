import { isHeaderName } from "../http/header-name.ts";
import { BadRequest } from "../http/request.ts";

export const HEAD_BYTES_MAX = 64 * 1024;

const REQUEST_LINE = /^([!#$%&'*+\-.^_`|~\w]{1,32}) ([!-~]+) HTTP\/1\.([01])\r\n/;
const OTHER_VERSION = /^\S+ \S+ HTTP\/(?!1\.[01]\r)\d(?:\.\d)?\r\n/;
const LENGTH = /^\d{1,15}$/;
const NAME_CHAR = 1;
const VALUE_CHAR = 2;
const TOKEN = /[!#$%&'*+\-.^_`|~\w]/;
/** What each character may be part of. */
const KINDS = Uint8Array.from({ length: 256 }, (_, code) => {
  const char = String.fromCharCode(code);
  return (TOKEN.test(char) ? NAME_CHAR : 0) | (/[\t -~\x80-\xff]/.test(char) ? VALUE_CHAR : 0);
});
const COLON = 58;
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
/** Scheme and authority of a target in absolute form. */
const ABSOLUTE = /^https?:\/\/([^/?]*)/i;
/** A name or an address and perhaps a port. A comma is legal in a name, but proxies read it as a list of hosts. */
const HOST = /^(?:[\w\-.~!$&'()*+;=%]*|\[[\w\-.~%:]+\])(?::\d*)?$/;

/** The head of an HTTP/1.1 request, read strictly: two parsers must never disagree about where a request ends. */
export class RequestHead {
  readonly method: string;
  readonly path: string;
  readonly search: string;
  /** Null when there is no body, or a chunked one. */
  readonly contentLength: number | null;
  readonly isChunked: boolean;
  /** The client waits for a 100 before it sends the body. */
  readonly expectsContinue: boolean;
  readonly isHttp10: boolean;
  readonly keepsAlive: boolean;
  readonly #text: string;
  /** Three positions for each header: where its name begins, its colon, and its line end. */
  readonly #lines: number[] = [];

  /** `text` is everything up to the line end before the empty line, inclusive, as Latin-1. */
  constructor(text: string) {
    const line = REQUEST_LINE.exec(text);
    if (!line) throw notHttp(text);
    this.method = line[1]!;
    this.#text = text;
    this.#findLines(line[0].length);
    const target = targetOf(line[2]!, this.method);
    const queryAt = target.indexOf("?");
    this.path = queryAt === -1 ? target : target.slice(0, queryAt);
    this.search = queryAt === -1 ? "" : target.slice(queryAt + 1);
    this.isHttp10 = line[3] === "0";
    this.isChunked = this.#readEncoding();
    this.contentLength = this.#readLength();
    this.keepsAlive = this.#readConnection();
    this.expectsContinue = this.#readExpectation();
    this.#checkHost();
  }

  get hasBody(): boolean {
    return this.isChunked || (this.contentLength ?? 0) > 0;
  }

  header(name: string): string | null {
    const first = this.#find(name, 0);
    if (first === -1) return null;
    let value = this.#value(first);
    for (let next = this.#find(name, first + 3); next !== -1; next = this.#find(name, next + 3))
      value += `, ${this.#value(next)}`;
    return value;
  }

  /** Those whose lower-case names match. */
  headersLike(names: RegExp): Record<string, string> {
    const found: Record<string, string> = {};
    for (let i = 0; i < this.#lines.length; i += 3) {
      const name = this.#text.slice(this.#lines[i], this.#lines[i + 1]).toLowerCase();
      if (names.test(name)) found[name] ??= this.header(name)!;
    }
    return found;
  }

  /** A line is a name, a colon and a value without control characters; folded lines are refused. */
  #findLines(from: number): void {
    const text = this.#text;
    for (let at = from; at < text.length; at += 2) {
      const start = at;
      while (KINDS[text.charCodeAt(at)]! & NAME_CHAR) at++;
      const colon = at;
      if (colon === start || text.charCodeAt(at++) !== COLON) throw malformedLine();
      while (KINDS[text.charCodeAt(at)]! & VALUE_CHAR) at++;
      if (text.charCodeAt(at) !== CR || text.charCodeAt(at + 1) !== LF) throw malformedLine();
      this.#lines.push(start, colon, at);
    }
  }

  /** Where the positions of the next header of that name stand, from `from` on; -1 when there is none. */
  #find(name: string, from: number): number {
    const lines = this.#lines;
    for (let i = from; i < lines.length; i += 3)
      if (isHeaderName(this.#text, lines[i]!, lines[i + 1]!, name)) return i;
    return -1;
  }

  /** Trims spaces and tabs only: `trim()` would remove more than other servers do. */
  #value(at: number): string {
    const text = this.#text;
    let start = this.#lines[at + 1]! + 1;
    let end = this.#lines[at + 2]!;
    while (start < end && isBlank(text.charCodeAt(start))) start++;
    while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
    return text.slice(start, end);
  }

  #count(name: string): number {
    const first = this.#find(name, 0);
    return first === -1 ? 0 : this.#find(name, first + 3) === -1 ? 1 : 2;
  }

  #checkHost(): void {
    const hosts = this.#count("host");
    if (hosts > 1 || (hosts === 0 && !this.isHttp10))
      throw new BadRequest(400, "a request has exactly one host header");
    if (hosts === 1 && !HOST.test(this.header("host")!))
      throw new BadRequest(400, "the host header is not a host name or address with an optional port");
  }

  #readEncoding(): boolean {
    const encoding = this.header("transfer-encoding");
    if (encoding === null) return false;
    if (this.isHttp10) throw new BadRequest(400, "HTTP/1.0 has no transfer-encoding");
    if (encoding.toLowerCase() !== "chunked")
      throw new BadRequest(501, "the only transfer-encoding that is understood is chunked");
    return true;
  }

  #readLength(): number | null {
    const count = this.#count("content-length");
    if (count === 0) return null;
    if (this.isChunked)
      throw new BadRequest(400, "content-length and transfer-encoding contradict each other");
    const value = this.header("content-length")!;
    if (count > 1 || !LENGTH.test(value)) throw new BadRequest(400, "content-length is not one number");
    return Number(value);
  }

  #readConnection(): boolean {
    const connection = this.header("connection");
    if (connection === null) return !this.isHttp10;
    return this.isHttp10 ? /\bkeep-alive\b/i.test(connection) : !/\bclose\b/i.test(connection);
  }

  #readExpectation(): boolean {
    const expectation = this.header("expect");
    if (expectation === null || this.isHttp10) return false;
    if (expectation.toLowerCase() !== "100-continue")
      throw new BadRequest(417, "the only expectation that is understood is 100-continue");
    return true;
  }
}

const malformedLine = (): BadRequest => new BadRequest(400, "a header line is malformed");
const isBlank = (code: number): boolean => code === SPACE || code === TAB;

const notHttp = (text: string): BadRequest =>
  OTHER_VERSION.test(text)
    ? new BadRequest(505, "only HTTP/1.1 is spoken here")
    : new BadRequest(400, "the request line is not HTTP/1.1");

function targetOf(target: string, method: string): string {
  // What follows its head is a tunnel's to other servers, and no body.
  if (method === "CONNECT") throw new BadRequest(400, "CONNECT is for proxies, and this server is none");
  // Servers disagree on whether a fragment is part of the path.
  if (target.includes("#")) throw new BadRequest(400, "the request's target has a fragment (#)");
  if (target.startsWith("/")) return target;
  const origin = ABSOLUTE.exec(target);
  if (origin) {
    if (!HOST.test(origin[1]!)) throw new BadRequest(400, "the host of the request's target is malformed");
    const rest = target.slice(origin[0].length);
    return rest.startsWith("/") ? rest : `/${rest}`;
  }
  // Asks about the server as a whole.
  if (target === "*" && method === "OPTIONS") return "/*";
  throw new BadRequest(400, "the request's target is neither a path nor a URL");
}

/**
 * Throws as soon as the beginning of a head can no longer become a valid one, instead of waiting for its end. Of its
 * lines only what comes after `checkedBytes` is looked at: a head may arrive byte by byte.
 */
export function checkBeginning(bytes: Buffer, checkedBytes = 0): void {
  const first = bytes[0]!;
  const isHalfEmptyLine = first === CR && bytes.length === 1;
  if (!TOKEN.test(String.fromCharCode(first)) && !isHalfEmptyLine)
    throw new BadRequest(400, "this is no HTTP request");
  for (let at = bytes.indexOf(LF, checkedBytes); at !== -1; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at - 1] !== CR) throw new BadRequest(400, "lines end with a carriage return and a line feed");
  }
  if (bytes.length <= HEAD_BYTES_MAX) return;
  const lineEnd = bytes.indexOf(LF);
  if (lineEnd === -1 || lineEnd > HEAD_BYTES_MAX)
    throw new BadRequest(414, "the request's target is too long");
  throw new BadRequest(431, "the headers are too large");
}
