import { isUtf8 } from "node:buffer";
import { endOfString, JsonStrings } from "./json-strings.ts";

/**
 * Reads JSON text as far as its extents: where strings, brackets and members begin and end. Strings are skipped by
 * the runtime's own search, so a long prompt costs next to nothing. What is wrong deeper inside is left to
 * `JSON.parse`, which is faster than a check written here would be, except of long strings (`JsonStrings`).
 */
export const JSON_DEPTH_MAX = 100;

export class JsonScanError extends Error {}

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const SCALAR = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,}]|$)/y;
const MEMBERS_MAX = 10_000;
/** In UTF-8, a character for each byte. */
const BYTE_ORDER_MARK = "\xef\xbb\xbf";
const TOO_DEEP = `it is nested deeper than ${JSON_DEPTH_MAX} levels`;

/** Told where each string inside a value begins and ends, quotes included. */
export type OnString = (text: string, start: number, end: number) => void;

interface Reading {
  onString?: OnString | undefined;
  /** Those of the same text. */
  strings?: JsonStrings | undefined;
}

/** Whether a character, or a byte, is white space between the parts of a JSON text. */
export const isSpace = (char: number): boolean => char === 32 || char === 10 || char === 13 || char === 9;

/** The position of the first character from `at` on that is not white space. */
export function skipSpace(text: string, at: number): number {
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

/** Follows the brackets of a JSON text, which may come in pieces. */
export class JsonNesting {
  readonly #closers: number[] = [];
  #hasOpened = false;
  /** The text so far ends inside a string, and there with a backslash that escapes what comes. */
  #isInString = false;
  #isEscaped = false;
  /** Why the text cannot be followed. */
  problem: string | null = null;
  readonly #depthMax: number;

  constructor(depthMax = JSON_DEPTH_MAX) {
    this.#depthMax = depthMax;
  }

  /** Everything that was opened is closed. */
  get isClosed(): boolean {
    return this.#hasOpened && this.#closers.length === 0 && this.problem === null;
  }

  /** Reads on from `at`, at most to the end of the outermost bracket: the position after it, or -1. */
  read(text: string, at = 0, { onString, strings }: Reading = {}): number {
    const closers = this.#closers;
    if (at >= text.length || this.problem !== null) return -1;
    if (this.#isInString) at = this.#string(text, this.#isEscaped ? at + 1 : at);
    while (at !== -1 && at < text.length) {
      const char = text.charCodeAt(at);
      if (char === QUOTE) {
        const end = this.#string(text, at + 1, strings);
        if (end === -1) return -1;
        onString?.(text, at, end);
        at = end;
        continue;
      }
      if (char === OPEN_BRACE || char === OPEN_BRACKET) {
        this.#hasOpened = true;
        closers.push(char === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);
        if (closers.length > this.#depthMax) return this.#stop(TOO_DEEP);
      } else if (char === CLOSE_BRACE || char === CLOSE_BRACKET) {
        if (closers.pop() !== char) return this.#stop(`a bracket at byte ${at} does not match`);
        if (closers.length === 0) return at + 1;
      }
      at++;
    }
    return -1;
  }

  /** Reads a whole piece. */
  feed(text: string): void {
    for (let at = 0; at !== -1 && at < text.length; ) at = this.read(text, at);
  }

  #string(text: string, from: number, strings?: JsonStrings): number {
    const end = strings ? strings.endOf(from) : endOfString(text, from);
    this.#isInString = end === -1;
    this.#isEscaped = end === -1 && /(?<!\\)(?:\\\\)*\\$/.test(text.slice(from));
    return end;
  }

  #stop(problem: string): -1 {
    this.problem = problem;
    return -1;
  }
}

/** Whether a document is nested too deep to be parsed, counted on its text so that a hostile one is not parsed. */
export function isTooDeep(text: string): boolean {
  // A text that is shorter than the limit cannot be nested deeper.
  if (text.length <= JSON_DEPTH_MAX) return false;
  const nesting = new JsonNesting();
  nesting.feed(text);
  return nesting.problem === TOO_DEEP;
}

/** An escape that stands for an ASCII letter, behind backslashes that escape each other. */
const ESCAPED_LETTER = /(?<!\\)((?:\\\\)*)\\u00([46][1-9a-fA-F]|[57][0-9aA])/g;

/** JSON that says the same, with its letters as they are: a key may be written `"us\u0061ge"`. */
export const withoutEscapedLetters = (json: string): string =>
  json.replace(
    ESCAPED_LETTER,
    (_, slashes: string, hex: string) => slashes + String.fromCharCode(Number.parseInt(hex, 16)),
  );

/** The position after the value that begins at `at`. */
export function skipValue(
  text: string,
  at: number,
  { onString, strings, depthMax }: Reading & { depthMax?: number } = {},
): number {
  const char = text.charCodeAt(at);
  if (char === QUOTE) return skipString(text, at, strings);
  if (char === OPEN_BRACE || char === OPEN_BRACKET) {
    const nesting = new JsonNesting(depthMax);
    const end = nesting.read(text, at, { onString, strings });
    if (end === -1) throw new JsonScanError(nesting.problem ?? "a bracket is not closed");
    return end;
  }
  SCALAR.lastIndex = at;
  if (!SCALAR.test(text)) throw new JsonScanError(`unexpected text at byte ${at}`);
  return SCALAR.lastIndex;
}

function skipString(text: string, at: number, strings?: JsonStrings): number {
  const end = strings ? strings.endOf(at + 1) : endOfString(text, at + 1);
  if (end === -1) throw new JsonScanError("a string does not end");
  return end;
}

/** Where a member of an object lies. */
export interface Member {
  key: string;
  /** The member with its key, up to the end of its value. */
  start: number;
  valueStart: number;
  end: number;
}

/** The members of a JSON object, in order, duplicates included; all of it is valid JSON. */
export function scanObject(bytes: Buffer): Member[] {
  const strings = new JsonStrings(bytes, bytes.toString("latin1"));
  const members = scanMembers(bytes, { strings });
  parseScanned(strings);
  return members;
}

/** The same, without a check of what is inside the members: that is `parseScanned`. */
export function scanMembers(bytes: Buffer, reading: Reading & { strings: JsonStrings }): Member[] {
  const { text } = reading.strings;
  if (!isUtf8(bytes)) throw new JsonScanError("it is not valid UTF-8");
  if (text.startsWith(BYTE_ORDER_MARK))
    throw new JsonScanError("it begins with a byte order mark; send UTF-8 without one");
  const start = skipSpace(text, 0);
  if (text.charCodeAt(start) !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const members: Member[] = [];
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) !== CLOSE_BRACE) {
    for (;;) {
      const member = readMember(bytes, text, at, reading);
      members.push(member);
      if (members.length > MEMBERS_MAX) throw new JsonScanError(`it has more than ${MEMBERS_MAX} members`);
      at = skipSpace(text, member.end);
      if (text.charCodeAt(at) === CLOSE_BRACE) break;
      if (text.charCodeAt(at) !== COMMA) throw new JsonScanError(`a comma is missing at byte ${at}`);
      at = skipSpace(text, at + 1);
    }
  }
  if (skipSpace(text, at + 1) < text.length)
    throw new JsonScanError(`something follows the object at byte ${at + 1}`);
  return members;
}

/** The object, its texts in Latin-1 (other letters, but the same syntax), and some of the long ones empty. */
export function parseScanned(strings: JsonStrings): Record<string, unknown> {
  try {
    return strings.parse() as Record<string, unknown>;
  } catch (error) {
    throw new JsonScanError((error as Error).message);
  }
}

function readMember(bytes: Buffer, text: string, start: number, { onString, strings }: Reading): Member {
  if (text.charCodeAt(start) !== QUOTE) throw new JsonScanError(`a key is missing at byte ${start}`);
  const keyEnd = skipString(text, start);
  const colon = skipSpace(text, keyEnd);
  if (text.charCodeAt(colon) !== COLON) throw new JsonScanError(`a colon is missing at byte ${colon}`);
  const valueStart = skipSpace(text, colon + 1);
  // The object itself is one level.
  const end = skipValue(text, valueStart, { onString, strings, depthMax: JSON_DEPTH_MAX - 1 });
  return { key: readKey(bytes, text, start, keyEnd), start, valueStart, end };
}

/** A key's text; one of plain letters, which is nearly every one, is read as it stands. */
function readKey(bytes: Buffer, text: string, start: number, end: number): string {
  const plain = text.slice(start + 1, end - 1);
  if (/^[\w$.-]*$/.test(plain)) return plain;
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as string;
  } catch {
    throw new JsonScanError(`a key at byte ${start} is not a JSON string`);
  }
}
