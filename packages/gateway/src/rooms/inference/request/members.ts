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
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const MEMBERS_MAX = 10_000;
/** Its UTF-8 bytes, read as Latin-1. */
const BYTE_ORDER_MARK = "\xef\xbb\xbf";

export interface Member {
  key: string;
  /** From the start of the key to the end of the value. */
  start: number;
  valueStart: number;
  end: number;
}

interface Outline {
  /** In order, repeated keys included. */
  members: Member[];
  /** Counts for the cost check, and the long strings of the `unkept` member. */
  nesting: JsonNesting;
}

/** Finds the members of a JSON object. `text` is `bytes` read as Latin-1, so positions are the same in both. */
export function outlineOf(bytes: Buffer, text: string, unkept?: string): Outline {
  if (!isAscii(bytes) && !isUtf8(bytes)) throw new JsonScanError("it is not valid UTF-8");
  if (text.startsWith(BYTE_ORDER_MARK))
    throw new JsonScanError("it begins with a byte order mark; send UTF-8 without one");
  const start = skipSpace(text, 0);
  if (text.charCodeAt(start) !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const nesting = new JsonNesting(JSON_DEPTH_MAX - 1);
  const members: Member[] = [];
  let at = skipSpace(text, start + 1);
  while (text.charCodeAt(at) !== CLOSE_BRACE || members.length > 0) {
    const longBefore = nesting.longStrings.length;
    const member = memberAt(at, bytes, text, nesting);
    if (member.key !== unkept) nesting.longStrings.length = longBefore;
    members.push(member);
    if (members.length > MEMBERS_MAX) throw new JsonScanError(`it has more than ${MEMBERS_MAX} members`);
    at = skipSpace(text, member.end);
    if (text.charCodeAt(at) === CLOSE_BRACE) break;
    if (text.charCodeAt(at) !== COMMA) throw new JsonScanError(`a comma is missing at byte ${at}`);
    at = skipSpace(text, at + 1);
  }
  nesting.outsideChars += members.reduce((left, member) => left - member.end + member.start, text.length);
  return { members, nesting };
}

function memberAt(start: number, bytes: Buffer, text: string, nesting: JsonNesting): Member {
  if (text.charCodeAt(start) !== QUOTE) throw new JsonScanError(`a key is missing at byte ${start}`);
  const keyEnd = endOfString(text, start + 1);
  const colon = skipSpace(text, keyEnd);
  if (keyEnd === -1 || text.charCodeAt(colon) !== COLON)
    throw new JsonScanError(`a colon is missing behind the key at byte ${start}`);
  const key = keyAt(bytes, text, start, keyEnd);
  const valueStart = skipSpace(text, colon + 1);
  nesting.outsideChars += valueStart - keyEnd;
  return { key, start, valueStart, end: endOfValue(text, valueStart, nesting) };
}

function endOfValue(text: string, at: number, nesting: JsonNesting): number {
  const char = text.charCodeAt(at);
  if (char === OPEN_BRACE || char === OPEN_BRACKET) return endOfBrackets(text, at, nesting);
  if (char === QUOTE) {
    const end = endOfString(text, at + 1);
    if (end === -1) throw new JsonScanError("a string does not end");
    return end;
  }
  SCALAR.lastIndex = at;
  if (!SCALAR.test(text)) throw new JsonScanError(`unexpected text at byte ${at}`);
  nesting.outsideChars += SCALAR.lastIndex - at;
  return SCALAR.lastIndex;
}
const SCALAR = /[\w.+-]+/y;

/** A key's text. Nearly all keys are plain letters and need no parsing. */
function keyAt(bytes: Buffer, text: string, start: number, end: number): string {
  const plain = text.slice(start + 1, end - 1);
  if (/^[\w$.-]*$/.test(plain)) return plain;
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as string;
  } catch {
    throw new JsonScanError(`a key at byte ${start} is not a JSON string`);
  }
}
