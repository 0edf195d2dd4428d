const QUOTE = 34;
const BACKSLASH = 92;
const SMALL_U = 117;
/** Characters below it have to be escaped. */
const SPACE = 32;
/** What may follow a backslash besides `u`. */
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'));
const IS_ESCAPED = Uint8Array.from({ length: 256 }, (_, byte) => Number(ESCAPED.has(byte)));
const IS_HEX = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(/[0-9a-fA-F]/.test(String.fromCharCode(byte))),
);
/** Shorter strings are parsed in less time than it takes to leave them out. */
const LONG_BYTES_MIN = 256;
/** A string with fewer escapes than this at its beginning is read faster by the parser, too. */
const PROBE_BYTES = 512;
const PROBE_ESCAPES_MIN = 12;

/** The position after the closing quote of a string whose text begins at `from`; -1 when it does not end. */
export function endOfString(text: string, from: number): number {
  for (let quote = text.indexOf('"', from); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    if (text.charCodeAt(quote - 1) !== BACKSLASH) return quote + 1;
    // Escaped when an odd number of backslashes stands before it.
    let slash = quote - 1;
    while (slash > from && text.charCodeAt(slash - 1) === BACKSLASH) slash--;
    if (slash < from || (quote - slash) % 2 === 0) return quote + 1;
  }
  return -1;
}

/**
 * A bit in the first of four bytes, least significant first, that is a quote, a backslash or a control character; 0 if
 * none is. Later bytes may have one by mistake.
 */
function specialIn(word: number): number {
  const quotes = word ^ 0x22222222;
  const slashes = word ^ 0x5c5c5c5c;
  // A subtraction carries into the highest bit of a byte that is too small for it.
  const found =
    ((quotes - 0x01010101) & ~quotes) | ((slashes - 0x01010101) & ~slashes) | ((word - 0x20202020) & ~word);
  return found & 0x80808080;
}

/** The bytes of the escape that begins at `at`; 0 when it is none. */
function escapeLength(bytes: Uint8Array, at: number): number {
  const letter = bytes[at + 1];
  if (letter === undefined) return 0;
  if (IS_ESCAPED[letter] === 1) return 2;
  if (letter !== SMALL_U) return 0;
  for (let digit = at + 2; digit < at + 6; digit++) if (IS_HEX[bytes[digit] ?? 0] === 0) return 0;
  return 6;
}

/**
 * The strings of a JSON text that is UTF-8. A parser copies one with escapes character by character, and prompts full of
 * code have thousands of them. So those are checked here, four bytes at a time, and the long ones are not parsed.
 */
export class JsonStrings {
  #view: DataView | null = null;
  /** The next backslash, as far as it was looked for. */
  #slashAt = -1;
  /** Where the contents of long strings begin and end, one after the other: each is valid. */
  readonly #long: number[] = [];

  /** `text` is `bytes` in Latin-1: positions are the same in both. */
  constructor(
    readonly bytes: Uint8Array,
    readonly text: string,
  ) {}

  /** What `endOfString` returns. To be asked for each string once, in their order. */
  endOf(from: number): number {
    const { text } = this;
    const quote = text.indexOf('"', from);
    if (quote === -1) return -1;
    if (this.#slashAt < from) {
      const slash = text.indexOf("\\", from);
      this.#slashAt = slash === -1 ? text.length : slash;
    }
    if (quote < this.#slashAt) return quote + 1;
    if (quote - from < LONG_BYTES_MIN && text.charCodeAt(quote - 1) !== BACKSLASH) return quote + 1;
    const end = this.#endOfValid(from);
    // The parser says what is wrong, if anything is.
    if (end === -1) return endOfString(text, from);
    if (end - from > LONG_BYTES_MIN) this.#long.push(from, end - 1);
    return end;
  }

  /** The same for a string that is valid JSON, unless the parser is better at it; else -1. */
  #endOfValid(from: number): number {
    const { bytes } = this;
    const { buffer, byteOffset, length } = bytes;
    this.#view ??= new DataView(buffer, byteOffset, length);
    const view = this.#view;
    let escapes = 0;
    for (let at = from, to = Math.min(length, from + PROBE_BYTES); ; to = length) {
      while (at < to) {
        if (at <= length - 4) {
          const special = specialIn(view.getInt32(at, true));
          if (special === 0) {
            at += 4;
            continue;
          }
          at += (31 - Math.clz32(special & -special)) >> 3;
        }
        const byte = bytes[at]!;
        if (byte === QUOTE) return at + 1;
        if (byte < SPACE) return -1;
        const step = byte === BACKSLASH ? escapeLength(bytes, at) : 1;
        if (step === 0) return -1;
        escapes++;
        at += step;
      }
      if (to === length || escapes < PROBE_ESCAPES_MIN) return -1;
    }
  }

  /** What the text says, except that long strings with escapes, which were found to be valid, are empty. */
  parse(): unknown {
    const { text } = this;
    let rest = "";
    let at = 0;
    for (let i = 0; i < this.#long.length; i += 2) {
      rest += text.slice(at, this.#long[i]);
      at = this.#long[i + 1]!;
    }
    return JSON.parse(at === 0 ? text : rest + text.slice(at));
  }
}
