import { JSON_DEPTH_MAX } from "../../kernel/json.ts";

/**
 * The top level of a JSON object, found in its bytes without parsing them: where each member lies. Strings are
 * skipped by the runtime's own search, so that a long prompt costs next to nothing.
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
const SCALAR = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,}]|$)/y;
const MEMBERS_MAX = 10_000;

/** The position of the first character from `at` on that is not white space. */
export function skipSpace(text: string, at: number): number {
  for (;;) {
    const char = text.charCodeAt(at);
    if (char !== 32 && char !== 10 && char !== 13 && char !== 9) return at;
    at++;
  }
}

/** The position after the closing quote of the string that opens at `at`. */
function skipString(text: string, at: number): number {
  for (let from = at + 1; ; ) {
    const quote = text.indexOf('"', from);
    if (quote === -1) throw new JsonScanError("a string does not end");
    if (text.charCodeAt(quote - 1) !== BACKSLASH) return quote + 1;
    // Escaped when an odd number of backslashes stands before it.
    let slash = quote - 1;
    while (slash > from && text.charCodeAt(slash - 1) === BACKSLASH) slash--;
    if (slash < from || (quote - slash) % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

/** Keys of the parts of a message that are an image, a sound or a file, with their quotes. */
const MEDIA_KEYS = [
  '"image_url"',
  '"input_audio"',
  '"images"',
  '"video_url"',
  '"audio_url"',
  '"input_video"',
  '"file_data"',
] as const;
const KEY_LENGTH_MAX = 100;

/** Whether the key between the positions is one of those, or written so that it may be. */
function isMediaKey(text: string, start: number, end: number): boolean {
  for (const key of MEDIA_KEYS) if (end - start === key.length && text.startsWith(key, start)) return true;
  return end - start <= KEY_LENGTH_MAX && text.slice(start, end).includes("\\");
}

/** What is noted while a body is scanned, besides its members. */
export interface ScanNotes {
  /** A key was seen that the parts of a message have which are an image or a sound. */
  hasMediaKeys: boolean;
}

/** The position after the object or array that opens at `at`. */
function skipNested(text: string, at: number, notes: ScanNotes): number {
  const closers: number[] = [];
  for (let i = at; i < text.length; ) {
    const char = text.charCodeAt(i);
    if (char === QUOTE) {
      const end = skipString(text, i);
      const isKey = text.charCodeAt(end) === COLON || text.charCodeAt(skipSpace(text, end)) === COLON;
      if (isKey && !notes.hasMediaKeys) notes.hasMediaKeys = isMediaKey(text, i, end);
      i = end;
      continue;
    }
    if (char === OPEN_BRACE || char === OPEN_BRACKET) {
      closers.push(char === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);
      if (closers.length > JSON_DEPTH_MAX)
        throw new JsonScanError(`it is nested deeper than ${JSON_DEPTH_MAX} levels`);
    } else if (char === CLOSE_BRACE || char === CLOSE_BRACKET) {
      if (closers.pop() !== char) throw new JsonScanError(`a bracket at byte ${i} does not match`);
      if (closers.length === 0) return i + 1;
    }
    i++;
  }
  throw new JsonScanError("a bracket is not closed");
}

function skipValue(text: string, at: number, notes: ScanNotes): number {
  const char = text.charCodeAt(at);
  if (char === QUOTE) return skipString(text, at);
  if (char === OPEN_BRACE || char === OPEN_BRACKET) return skipNested(text, at, notes);
  SCALAR.lastIndex = at;
  if (!SCALAR.test(text)) throw new JsonScanError(`unexpected text at byte ${at}`);
  return SCALAR.lastIndex;
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

/** The members of a JSON object, in order, duplicates included. `text` is `bytes` in Latin-1. */
export function scanObject(
  bytes: Buffer,
  text = bytes.toString("latin1"),
  notes: ScanNotes = { hasMediaKeys: false },
): Member[] {
  let at = skipSpace(text, 0);
  if (text.charCodeAt(at) !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const members: Member[] = [];
  at = skipSpace(text, at + 1);
  if (text.charCodeAt(at) !== CLOSE_BRACE) {
    for (;;) {
      const member = readMember(bytes, text, at, notes);
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

function readMember(bytes: Buffer, text: string, start: number, notes: ScanNotes): Member {
  if (text.charCodeAt(start) !== QUOTE) throw new JsonScanError(`a key is missing at byte ${start}`);
  const keyEnd = skipString(text, start);
  const colon = skipSpace(text, keyEnd);
  if (text.charCodeAt(colon) !== COLON) throw new JsonScanError(`a colon is missing at byte ${colon}`);
  const valueStart = skipSpace(text, colon + 1);
  const end = skipValue(text, valueStart, notes);
  return { key: readKey(bytes, text, start, keyEnd), start, valueStart, end };
}
