import { isUtf8 } from "node:buffer";

/** A character has at most this many bytes. */
const CHARACTER_BYTES_MAX = 4;
const NO_BYTES = Buffer.alloc(0);

/** Bytes of the character that begins with this byte; 0 when none does. */
function characterBytes(first: number): number {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

/** Whether the second byte may follow the first; the limits exclude overlong forms, surrogates and what is too large. */
function mayFollow(first: number, second: number): boolean {
  if (first === 0xe0) return second >= 0xa0 && second <= 0xbf;
  if (first === 0xed) return second >= 0x80 && second <= 0x9f;
  if (first === 0xf0) return second >= 0x90 && second <= 0xbf;
  if (first === 0xf4) return second >= 0x80 && second <= 0x8f;
  return second >= 0x80 && second <= 0xbf;
}

/** Whether the bytes are the beginning of a character, at least one byte short of the whole. */
function isBeginning(bytes: Buffer): boolean {
  if (characterBytes(bytes[0]!) <= bytes.length) return false;
  if (bytes.length > 1 && !mayFollow(bytes[0]!, bytes[1]!)) return false;
  return bytes.length < 3 || (bytes[2]! >= 0x80 && bytes[2]! <= 0xbf);
}

/** Checks a text as its bytes come, so that a bad one is known at the first byte that no text could have there. */
export class Utf8Check {
  /** The beginning of a character whose rest is still to come. */
  #begun: Buffer = NO_BYTES;

  /** False when the bytes so far cannot become a text. */
  add(piece: Buffer): boolean {
    const bytes = this.#begun.length === 0 ? piece : Buffer.concat([this.#begun, piece]);
    const end = bytes.length - begunBytes(bytes);
    // A copy: a view would keep the whole read alive.
    this.#begun = end === bytes.length ? NO_BYTES : Buffer.from(bytes.subarray(end));
    return isUtf8(bytes.subarray(0, end));
  }
}

/** How many bytes at the end are the beginning of a character. */
function begunBytes(bytes: Buffer): number {
  for (let count = 1; count < CHARACTER_BYTES_MAX && count <= bytes.length; count++) {
    if (isBeginning(bytes.subarray(bytes.length - count))) return count;
  }
  return 0;
}
