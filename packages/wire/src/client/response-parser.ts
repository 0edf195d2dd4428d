import { ChunkDecoder, type ChunkReader } from "../http/chunks.ts";
import { isHeaderName } from "../http/header-name.ts";
import { partOf } from "../pieces.ts";

export interface ResponseHead {
  status: number;
  statusText: string;
  contentType: string;
  retryAfter: string | null;
  /** Status line and headers. */
  text: string;
  /** Null when the length is not declared. */
  contentLength: number | null;
}

export interface ResponseEvents {
  headed(head: ResponseHead): void;
  piece(bytes: Buffer): void;
  end(): void;
}

export class HttpParseError extends Error {}

const HEAD_BYTES_MAX = 64 * 1024;
const ZERO = 48;
const LETTER_C = 99;
const LETTER_R = 114;
const LETTER_T = 116;
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const NO_BREAK_SPACE = 160;
const HEAD_END = Buffer.from("\r\n\r\n");
/** The ends of heads whose lines end with bare line feeds. */
const BARE_HEAD_END = /\n\r?\n/;
const FOLD = /\r?\n[\t ]+/g;

const STATUS_LINE = /^HTTP\/1\.[01] \d{3}(?:[ \r\n]|$)/;

/** The headers that matter. */
const HEADER_NAMES = [
  "content-type",
  "content-length",
  "connection",
  "transfer-encoding",
  "content-encoding",
  "retry-after",
] as const;
type HeaderName = (typeof HEADER_NAMES)[number];

type State = "head" | "length" | "chunks" | "until-close" | "done";

interface Framing extends ResponseHead {
  chunked: boolean;
  /** The connection cannot be reused: the server closes it, or where the next answer begins is unclear. */
  closes: boolean;
}

/** Parses one HTTP/1.1 answer as its bytes arrive. Large pieces of its body are views of the input. */
export class ResponseParser implements ChunkReader {
  #state: State = "head";
  /** Bytes of an incomplete head. */
  #partialHead: Buffer | null = null;
  /** Bytes left of the declared length. */
  #left = 0;
  #chunks: ChunkDecoder | null = null;
  #closes = false;

  constructor(readonly events: ResponseEvents) {}

  /** The whole answer was read, and another may follow on the connection. */
  get isReusable(): boolean {
    return this.#state === "done" && !this.#closes;
  }
  get isDone(): boolean {
    return this.#state === "done";
  }

  /** Throws HttpParseError for what is not HTTP/1.1. */
  feed(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) {
      switch (this.#state) {
        case "head":
          at = this.#readHead(bytes, at);
          break;
        case "length":
          at = this.#readData(bytes, at);
          break;
        case "chunks":
          at = this.#readChunks(this.#chunks!, bytes, at);
          break;
        case "until-close":
          this.events.piece(at === 0 ? bytes : bytes.subarray(at));
          return;
        case "done":
          throw new HttpParseError("bytes follow the end of the answer");
      }
    }
  }

  /** The server has closed the connection. False when part of the answer is missing. */
  closed(): boolean {
    if (this.#state !== "until-close") return this.#state === "done";
    this.#finish();
    return true;
  }

  #finish(): void {
    this.#state = "done";
    this.events.end();
  }

  #readHead(bytes: Buffer, at: number): number {
    const earlier = this.#partialHead;
    const all = earlier ? Buffer.concat([earlier, bytes.subarray(at)]) : bytes;
    const from = earlier ? 0 : at;
    const { end, bodyFrom } = endOfHead(all, from);
    if (end === -1) {
      if (all.length - from > HEAD_BYTES_MAX) throw new HttpParseError("the answer's headers do not end");
      // A copy: a view would keep the whole read alive.
      this.#partialHead = Buffer.from(all.subarray(from));
      return bytes.length;
    }
    this.#partialHead = null;
    const framing = parseHead(all.toString("latin1", from, end));
    const next = earlier ? bodyFrom - earlier.length + at : bodyFrom;
    // Interim answers (1xx) precede the real one.
    if (framing.status >= 100 && framing.status < 200) {
      if (framing.status === 101) throw new HttpParseError("the upstream switched protocols unasked");
      return next;
    }
    this.#closes = framing.closes;
    this.#left = framing.contentLength ?? 0;
    if (framing.chunked) this.#chunks = new ChunkDecoder(this, { isLenient: true });
    const isEmpty = framing.contentLength === 0 || framing.status === 204 || framing.status === 304;
    this.#state = isEmpty
      ? "done"
      : framing.chunked
        ? "chunks"
        : framing.contentLength === null
          ? "until-close"
          : "length";
    this.events.headed(framing);
    if (isEmpty) this.events.end();
    return next;
  }

  #readData(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    const isWhole = this.#left === 0;
    if (isWhole) this.#state = "done";
    this.events.piece(partOf(bytes, at, end));
    if (isWhole) this.events.end();
    return end;
  }

  #readChunks(chunks: ChunkDecoder, bytes: Buffer, at: number): number {
    const next = chunks.feed(bytes, at);
    if (chunks.isDone) this.#finish();
    return next;
  }

  piece(bytes: Buffer): void {
    this.events.piece(bytes);
  }

  malformed(reason: string): never {
    throw new HttpParseError(reason);
  }
}

/** Where the head ends and its body begins; `end` is -1 while the head is incomplete. */
function endOfHead(bytes: Buffer, from: number): { end: number; bodyFrom: number } {
  const lineEnd = bytes.indexOf(LF, from);
  if (lineEnd > from && bytes[lineEnd - 1] !== CR) {
    // At most this much of a head is looked at, so a long body behind it costs nothing.
    const head = bytes.toString("latin1", from, from + HEAD_BYTES_MAX + 2);
    const found = BARE_HEAD_END.exec(head);
    if (!found) return { end: -1, bodyFrom: -1 };
    return { end: from + found.index, bodyFrom: from + found.index + found[0].length };
  }
  const end = bytes.indexOf(HEAD_END, from);
  return { end, bodyFrom: end + HEAD_END.length };
}

/** Status line and headers, without the empty line. */
function parseHead(text: string): Framing {
  if (!STATUS_LINE.test(text)) throw new HttpParseError("the upstream's answer is not HTTP/1.1");
  let lineEnd = endOfLine(text, 0);
  const head: Framing = {
    status: Number(text.slice(9, 12)),
    statusText: text.slice(13, Math.max(13, trimmedEnd(text, 13, lineEnd))),
    contentType: "",
    retryAfter: null,
    text,
    contentLength: null,
    chunked: false,
    // HTTP/1.0 closes unless it says otherwise.
    closes: text.charCodeAt(7) === ZERO,
  };
  let hasEncoding = false;
  while (lineEnd < text.length) {
    const start = lineEnd + 1;
    lineEnd = endOfLine(text, start);
    // Only headers with these initials matter; most have others.
    const initial = text.charCodeAt(start) | 32;
    if (initial !== LETTER_C && initial !== LETTER_T && initial !== LETTER_R) continue;
    const colon = text.indexOf(":", start);
    if (colon === -1 || colon > lineEnd) throw new HttpParseError("a header has no colon");
    const name = nameIn(text, start, colon);
    if (name === null) continue;
    const value = valueIn(text, colon + 1, lineEnd);
    if (name === "transfer-encoding") {
      hasEncoding = true;
      head.chunked = /(?:^|,)\s*chunked$/i.test(value);
    } else readHeader(head, name, value);
  }
  return framed(head, hasEncoding);
}

/** Those whose lower-case names match; of a repeated one the first. */
export function headersLike(text: string, names: RegExp): Record<string, string> {
  const found: Record<string, string> = {};
  for (let lineEnd = endOfLine(text, 0); lineEnd < text.length; ) {
    const start = lineEnd + 1;
    lineEnd = endOfLine(text, start);
    const colon = text.indexOf(":", start);
    const name = text.slice(start, trimmedEnd(text, start, colon)).toLowerCase();
    if (names.test(name)) found[name] ??= valueIn(text, colon + 1, lineEnd);
  }
  return found;
}

/** The name before a colon, if it is one that matters. RFC 9112 (5.1): blanks before the colon are removed. */
function nameIn(text: string, start: number, colon: number): HeaderName | null {
  const end = trimmedEnd(text, start, colon);
  for (const name of HEADER_NAMES) if (isHeaderName(text, start, end, name)) return name;
  return null;
}

/** RFC 9112 (5.2): a value that continues on the next line is unfolded. */
function valueIn(text: string, from: number, lineEnd: number): string {
  let start = from;
  while (start < lineEnd && isWhiteSpace(text.charCodeAt(start))) start++;
  const value = text.slice(start, trimmedEnd(text, start, lineEnd));
  return value.includes("\n") ? value.replace(FOLD, " ") : value;
}

function trimmedEnd(text: string, start: number, end: number): number {
  while (end > start && isWhiteSpace(text.charCodeAt(end - 1))) end--;
  return end;
}

/** What `trim()` removes. */
const isWhiteSpace = (code: number): boolean =>
  code === SPACE || (code >= TAB && code <= CR) || code === NO_BREAK_SPACE;

/** The line feed that ends a header, past the lines that continue it. */
function endOfLine(text: string, from: number): number {
  for (let at = from; ; ) {
    const end = text.indexOf("\n", at);
    if (end === -1) return text.length;
    const next = text.charCodeAt(end + 1);
    if (next !== SPACE && next !== TAB) return end;
    at = end + 1;
  }
}

function readHeader(head: Framing, name: HeaderName, value: string): void {
  switch (name) {
    case "content-type":
      head.contentType = value;
      break;
    case "content-length":
      head.contentLength = lengthOf(value, head.contentLength);
      break;
    case "connection":
      if (/\bclose\b/i.test(value)) head.closes = true;
      else if (/\bkeep-alive\b/i.test(value)) head.closes = false;
      break;
    case "retry-after":
      head.retryAfter = value;
      break;
    case "content-encoding":
      if (value !== "" && value.toLowerCase() !== "identity")
        throw new HttpParseError(`the upstream answered in ${value.slice(0, 32)}, which was not asked for`);
  }
}

function framed(head: Framing, hasEncoding: boolean): Framing {
  // Length and encoding contradict each other: the encoding counts, and the connection is not reused.
  if (hasEncoding && head.contentLength !== null) head.closes = true;
  if (hasEncoding) head.contentLength = null;
  if (!head.chunked && head.contentLength === null) head.closes = true;
  return head;
}

function lengthOf(value: string, before: number | null): number {
  const length = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isNaN(length) || (before !== null && before !== length))
    throw new HttpParseError("the answer's content-length is not one number");
  return length;
}
