import { isAscii, isUtf8 } from "node:buffer";
import {
  endOfBrackets,
  endOfString,
  JSON_DEPTH_MAX,
  JsonNesting,
  JsonScanError,
  skipSpace,
} from "../../../kernel/json-scan.ts";

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACKET = 91;
const BACKSLASH = 92;
const SMALL_U = 117;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const MEMBERS_MAX = 10_000;
/** In UTF-8, a character for each byte. */
const BYTE_ORDER_MARK = "\xef\xbb\xbf";
/** A shorter string is parsed in less time than it takes to leave it out. */
const LONG_CHARS_MIN = 256;
/** With fewer escapes than this at its beginning, a long one is, too. */
const PROBE_CHARS = 512;
const PROBE_ESCAPES_MIN = 12;

export interface Member {
  key: string;
  /** The member with its key, up to the end of its value. */
  start: number;
  valueStart: number;
  end: number;
}

interface Outline {
  /** In order, repeated keys included. */
  members: Member[];
  /** How much there is in it. */
  nesting: JsonNesting;
  /** The text without long strings of `lightened` that are full of escapes, which parse slowly; they are checked here. */
  shape: string;
}

/** Finds the members of a JSON object. `text` is `bytes` in Latin-1, so that positions are the same in both. */
export function outlineOf(bytes: Buffer, text: string, lightened?: string): Outline {
  if (!isAscii(bytes) && !isUtf8(bytes)) throw new JsonScanError("it is not valid UTF-8");
  if (text.startsWith(BYTE_ORDER_MARK))
    throw new JsonScanError("it begins with a byte order mark; send UTF-8 without one");
  const start = skipSpace(text, 0);
  if (text.charCodeAt(start) !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const strings = new Strings(bytes, text, lightened);
  const { nesting } = strings;
  const members: Member[] = [];
  let at = skipSpace(text, start + 1);
  while (text.charCodeAt(at) !== CLOSE_BRACE || members.length > 0) {
    const member = memberAt(at, bytes, text, strings);
    members.push(member);
    if (members.length > MEMBERS_MAX) throw new JsonScanError(`it has more than ${MEMBERS_MAX} members`);
    at = skipSpace(text, member.end);
    if (text.charCodeAt(at) === CLOSE_BRACE) break;
    if (text.charCodeAt(at) !== COMMA) throw new JsonScanError(`a comma is missing at byte ${at}`);
    at = skipSpace(text, at + 1);
  }
  nesting.outsideChars += members.reduce((left, member) => left - member.end + member.start, text.length);
  return { members, nesting, shape: strings.withoutCuts() };
}

function memberAt(start: number, bytes: Buffer, text: string, strings: Strings): Member {
  if (text.charCodeAt(start) !== QUOTE) throw new JsonScanError(`a key is missing at byte ${start}`);
  const keyEnd = endOfString(text, start + 1);
  const colon = skipSpace(text, keyEnd);
  if (keyEnd === -1 || text.charCodeAt(colon) !== COLON)
    throw new JsonScanError(`a colon is missing behind the key at byte ${start}`);
  const key = keyAt(bytes, text, start, keyEnd);
  const valueStart = skipSpace(text, colon + 1);
  strings.nesting.outsideChars += valueStart - keyEnd;
  return {
    key,
    start,
    valueStart,
    end: endOfValue(text, valueStart, {
      nesting: strings.nesting,
      endOf: key === strings.lightened ? strings.endOf : undefined,
    }),
  };
}

interface ReadBy {
  nesting: JsonNesting;
  endOf?: (from: number) => number;
}

function endOfValue(text: string, at: number, by: ReadBy): number {
  const char = text.charCodeAt(at);
  if (char === OPEN_BRACE || char === OPEN_BRACKET) return endOfBrackets(text, at, by);
  if (char === QUOTE) {
    const end = endOfString(text, at + 1);
    if (end === -1) throw new JsonScanError("a string does not end");
    return end;
  }
  SCALAR.lastIndex = at;
  if (!SCALAR.test(text)) throw new JsonScanError(`unexpected text at byte ${at}`);
  by.nesting.outsideChars += SCALAR.lastIndex - at;
  return SCALAR.lastIndex;
}
const SCALAR = /[\w.+-]+/y;

/** A key's text; one of plain letters, which is nearly every one, is read as it stands. */
function keyAt(bytes: Buffer, text: string, start: number, end: number): string {
  const plain = text.slice(start + 1, end - 1);
  if (/^[\w$.-]*$/.test(plain)) return plain;
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as string;
  } catch {
    throw new JsonScanError(`a key at byte ${start} is not a JSON string`);
  }
}

/** The strings of a text, each to be asked for once and in their order; some are cut out of it. */
class Strings {
  /** Where the contents of those that are cut begin and end, one after the other. */
  readonly #cuts: number[] = [];
  /** Of the values of the members, which are one level down. */
  readonly nesting = new JsonNesting(JSON_DEPTH_MAX - 1);

  constructor(
    readonly bytes: Uint8Array,
    readonly text: string,
    readonly lightened: string | undefined,
  ) {}

  /** The position after the closing quote of the string whose text begins at `from`; -1 when it does not end. */
  readonly endOf = (from: number): number => {
    const { text } = this;
    const quote = text.indexOf('"', from);
    if (quote === -1) return -1;
    const isShort = quote - from < LONG_CHARS_MIN && text.charCodeAt(quote - 1) !== BACKSLASH;
    if (isShort) return quote + 1;
    const escapes = text.slice(from, from + PROBE_CHARS).split("\\").length - 1;
    const end = escapes < PROBE_ESCAPES_MIN ? -1 : endOfValidString(this.bytes, from);
    // The parser says what is wrong with it, if anything is.
    if (end === -1) return endOfString(text, from);
    if (end - from > LONG_CHARS_MIN) this.#cuts.push(from, end - 1);
    return end;
  };

  withoutCuts(): string {
    let shape = "";
    let at = 0;
    for (let i = 0; i < this.#cuts.length; i += 2) {
      shape += this.text.slice(at, this.#cuts[i]);
      at = this.#cuts[i + 1]!;
    }
    return at === 0 ? this.text : shape + this.text.slice(at);
  }
}

/** Bytes that stand for themselves in a string: no quote, no backslash, no control character. */
const IS_PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(byte >= 32 && byte !== QUOTE && byte !== BACKSLASH),
);
const table = (chars: string) => {
  const listed = new Set(Buffer.from(chars));
  return Uint8Array.from({ length: 256 }, (_, byte) => Number(listed.has(byte)));
};
const IS_ESCAPED = table('"\\/bfnrt');
const IS_HEX = table("0123456789abcdefABCDEF");
const HEX_DIGITS = 4;

function endOfValidString(bytes: Uint8Array, from: number): number {
  const plain = IS_PLAIN;
  const lastFour = bytes.length - 4;
  for (let at = from; ; at += 2) {
    while (
      at <= lastFour &&
      (plain[bytes[at]!]! & plain[bytes[at + 1]!]! & plain[bytes[at + 2]!]! & plain[bytes[at + 3]!]!) === 1
    )
      at += 4;
    while (plain[bytes[at]!] === 1) at++;
    if (bytes[at] === QUOTE) return at + 1;
    if (bytes[at] !== BACKSLASH) return -1;
    const escaped = bytes[at + 1]!;
    if (escaped === SMALL_U) {
      for (let digit = 0; digit < HEX_DIGITS; digit++) if (IS_HEX[bytes[at + 2 + digit]!] !== 1) return -1;
      at += HEX_DIGITS;
    } else if (IS_ESCAPED[escaped] !== 1) return -1;
  }
}
