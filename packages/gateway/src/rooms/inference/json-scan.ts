import { JSON_DEPTH_MAX } from "../../kernel/json.ts";

/**
 * The top level of a JSON object, found in its bytes without parsing them: where each member lies. Strings are
 * skipped by the runtime's own byte search, so that a long prompt costs next to nothing.
 *
 * Members are checked as far as their extent needs; what is wrong deeper inside is the upstream's to refuse.
 */
export interface Member {
  key: string;
  /** The member with its key, up to the end of its value. */
  start: number;
  valueStart: number;
  end: number;
}

export class JsonScanError extends Error {}

const QUOTE = 34;
const BACKSLASH = 92;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
/** Short strings are walked; from here on the native search pays for its call. */
const WALKED_BYTES = 24;
const SCALAR = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;
const SCALAR_BYTES_MAX = 512;
const MEMBERS_MAX = 10_000;

const isSpace = (byte: number | undefined) => byte === 32 || byte === 10 || byte === 13 || byte === 9;

function skipSpace(bytes: Buffer, at: number): number {
  while (isSpace(bytes[at])) at++;
  return at;
}

/** The position after the closing quote of the string that opens at `at`. */
function skipString(bytes: Buffer, at: number): number {
  let i = at + 1;
  for (const walkedEnd = i + WALKED_BYTES; i < walkedEnd; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) return i + 1;
    if (byte === BACKSLASH) i++;
    else if (byte === undefined) throw new JsonScanError("a string does not end");
  }
  for (;;) {
    const quote = bytes.indexOf(QUOTE, i);
    if (quote === -1) throw new JsonScanError("a string does not end");
    // Escaped when an odd number of backslashes stands before it; those before `i` are dealt with already.
    let slash = quote;
    while (slash > i && bytes[slash - 1] === BACKSLASH) slash--;
    if ((quote - slash) % 2 === 0) return quote + 1;
    i = quote + 1;
  }
}

/** The position after the object or array that opens at `at`. */
function skipNested(bytes: Buffer, at: number): number {
  const closers: number[] = [];
  for (let i = at; i < bytes.length; ) {
    const byte = bytes[i];
    if (byte === QUOTE) {
      i = skipString(bytes, i);
      continue;
    }
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      closers.push(byte === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);
      if (closers.length > JSON_DEPTH_MAX)
        throw new JsonScanError(`it is nested deeper than ${JSON_DEPTH_MAX} levels`);
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (closers.pop() !== byte) throw new JsonScanError(`a bracket at byte ${i} does not match`);
      if (closers.length === 0) return i + 1;
    }
    i++;
  }
  throw new JsonScanError("a bracket is not closed");
}

function skipScalar(bytes: Buffer, at: number): number {
  let end = at;
  while (end < bytes.length && !isSpace(bytes[end]) && bytes[end] !== COMMA && bytes[end] !== CLOSE_BRACE) {
    if (++end - at > SCALAR_BYTES_MAX) break;
  }
  if (!SCALAR.test(bytes.toString("latin1", at, end)))
    throw new JsonScanError(`unexpected text at byte ${at}`);
  return end;
}

function skipValue(bytes: Buffer, at: number): number {
  const byte = bytes[at];
  if (byte === QUOTE) return skipString(bytes, at);
  if (byte === OPEN_BRACE || byte === OPEN_BRACKET) return skipNested(bytes, at);
  return skipScalar(bytes, at);
}

/** A JSON string's text; keys without escapes, which is all of them, are read as they stand. */
function readString(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString("utf8", start + 1, end - 1);
  if (!text.includes("\\")) return text;
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as string;
  } catch {
    throw new JsonScanError(`a key at byte ${start} is not a JSON string`);
  }
}

/** The members of the object that begins at `from`, in order, duplicates included. */
export function scanObject(bytes: Buffer, from = 0, to = bytes.length): Member[] {
  let at = skipSpace(bytes, from);
  if (bytes[at] !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const members: Member[] = [];
  at = skipSpace(bytes, at + 1);
  if (bytes[at] === CLOSE_BRACE) at++;
  else {
    for (;;) {
      if (bytes[at] !== QUOTE) throw new JsonScanError(`a key is missing at byte ${at}`);
      const start = at;
      const keyEnd = skipString(bytes, at);
      at = skipSpace(bytes, keyEnd);
      if (bytes[at] !== COLON) throw new JsonScanError(`a colon is missing at byte ${at}`);
      const valueStart = skipSpace(bytes, at + 1);
      const end = skipValue(bytes, valueStart);
      members.push({ key: readString(bytes, start, keyEnd), start, valueStart, end });
      if (members.length > MEMBERS_MAX) throw new JsonScanError(`it has more than ${MEMBERS_MAX} members`);
      at = skipSpace(bytes, end);
      if (bytes[at] === CLOSE_BRACE) break;
      if (bytes[at] !== COMMA) throw new JsonScanError(`a comma is missing at byte ${at}`);
      at = skipSpace(bytes, at + 1);
    }
    at++;
  }
  if (skipSpace(bytes, at) < to) throw new JsonScanError(`something follows the object at byte ${at}`);
  return members;
}
