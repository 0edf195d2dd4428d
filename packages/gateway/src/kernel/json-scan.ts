/** Finds where strings and brackets of a JSON text end. `JSON.parse` finds the other errors. */
export const JSON_DEPTH_MAX = 100;

/** Cutting out shorter strings takes longer than parsing them. */
const LONG_STRING_CHARS = 256;

export class JsonScanError extends Error {}

const QUOTE = 34;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const BACKSLASH = 92;
const TOO_DEEP = `it is nested deeper than ${JSON_DEPTH_MAX} levels`;

/** The position after the closing quote of a string whose text begins at `from`; -1 if it does not end. */
export function endOfString(text: string, from: number): number {
  for (let quote = text.indexOf('"', from); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    if (text.charCodeAt(quote - 1) !== BACKSLASH) return quote + 1;
    if (slashesBefore(text, quote, from) % 2 === 0) return quote + 1;
  }
  return -1;
}

/** How many backslashes precede a position; an odd number escapes the next character. */
function slashesBefore(text: string, end: number, from: number): number {
  let at = end;
  while (at > from && text.charCodeAt(at - 1) === BACKSLASH) at--;
  return end - at;
}

const isSpace = (char: number): boolean => char === 32 || char === 10 || char === 13 || char === 9;

export function skipSpace(text: string, at: number): number {
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

function endOfPlain(text: string, at: number, limit: number): number {
  while (at < limit) {
    const char = text.charCodeAt(at);
    // `[` and `{`, and `]` and `}`, differ in bit 5 only.
    if (char === QUOTE || (char | 32) === OPEN_BRACE || (char | 32) === CLOSE_BRACE) break;
    at++;
  }
  return at;
}

/** Follows the brackets of a JSON text, which may come in pieces. */
export class JsonNesting {
  readonly #closers: number[] = [];
  #hasOpened = false;
  strings = 0;
  containers = 0;
  outsideChars = 0;
  /** Pairs of positions, from the first piece fed: where long strings begin and end, with their quotes. */
  readonly longStrings: number[] = [];
  /** Characters of earlier pieces, and where the current or last string began. */
  #fedChars = 0;
  #stringStart = 0;
  /** The text so far ends inside a string, and there with a backslash that escapes the next character. */
  #isInString = false;
  #isEscaped = false;
  problem: string | null = null;
  readonly #depthMax: number;

  constructor(depthMax = JSON_DEPTH_MAX) {
    this.#depthMax = depthMax;
  }

  get isClosed(): boolean {
    return this.#hasOpened && this.#closers.length === 0 && this.problem === null;
  }

  /** Continues from `at` to the end of the outermost bracket at most; returns the position after it, or -1. */
  read(text: string, at = 0): number {
    const closers = this.#closers;
    if (at >= text.length || this.problem !== null) return -1;
    // A costly text is not scanned to its end, which would be as slow as parsing it.
    const isLarge = text.length > FREE_CHARS_MAX;
    if (this.#isInString) at = this.#string(text, this.#isEscaped ? at + 1 : at);
    while (at !== -1 && at < text.length) {
      const outsideMax = isLarge ? OUTSIDE_STRINGS_CHARS_MAX - this.outsideChars : Number.POSITIVE_INFINITY;
      const outside = at;
      at = endOfPlain(text, at, Math.min(text.length, at + outsideMax));
      this.outsideChars += at - outside;
      if (at === text.length) return -1;
      const char = text.charCodeAt(at);
      if (char === QUOTE) {
        if (++this.strings > STRINGS_MAX && isLarge) return this.#stopCostly(text);
        this.#stringStart = this.#fedChars + at;
        at = this.#string(text, at + 1);
        continue;
      }
      if (++this.outsideChars > OUTSIDE_STRINGS_CHARS_MAX && isLarge) return this.#stopCostly(text);
      if (char === OPEN_BRACE || char === OPEN_BRACKET) {
        this.#hasOpened = true;
        if (++this.containers > CONTAINERS_MAX && isLarge) return this.#stopCostly(text);
        closers.push(char === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);
        if (closers.length > this.#depthMax) return this.#stop(TOO_DEEP);
      } else {
        if (closers.pop() !== char) return this.#stop(`a bracket at byte ${at} does not match`);
        if (closers.length === 0) return at + 1;
      }
      at++;
    }
    return -1;
  }

  feed(text: string): void {
    for (let at = 0; at !== -1 && at < text.length; ) at = this.read(text, at);
    this.#fedChars += text.length;
  }

  #string(text: string, from: number): number {
    const end = endOfString(text, from);
    this.#isInString = end === -1;
    if (end === -1) this.#isEscaped = slashesBefore(text, text.length, from) % 2 === 1;
    else if (this.#fedChars + end - this.#stringStart > LONG_STRING_CHARS)
      this.longStrings.push(this.#stringStart, this.#fedChars + end);
    return end;
  }

  #stopCostly(text: string): -1 {
    return this.#stop(`it is too costly to read: ${costProblem(text, this)}`);
  }

  #stop(problem: string): -1 {
    this.problem = problem;
    return -1;
  }
}

const CONTROL = /[^ -\xff]/;
/** An escaped backslash, or the start of an escape that JSON does not have, which does not end with a backslash. */
const ODD_ESCAPE = /\\(?:\\|[^"\\/bfnrtu]|u(?![\da-fA-F]{4}))/g;

/** Whether a parser would accept this text between quotes. */
function isSound(text: string): boolean {
  // The runtime's count is much faster than the expression; control characters have no width.
  if (Bun.stringWidth(text) < text.length && CONTROL.test(text)) return false;
  ODD_ESCAPE.lastIndex = 0;
  while (ODD_ESCAPE.test(text)) if (text.charCodeAt(ODD_ESCAPE.lastIndex - 1) !== BACKSLASH) return false;
  return true;
}

/** The JSON with these strings emptied, because parsers copy long ones escape by escape. Invalid ones stay, to be refused. */
export function withoutTexts(json: string, strings: readonly number[]): string {
  let [kept, at] = ["", 0];
  for (let i = 0; i < strings.length; i += 2) {
    const [start, end] = [strings[i]! + 1, strings[i + 1]! - 1];
    if (!isSound(json.slice(start, end))) continue;
    kept += json.slice(at, start);
    at = end;
  }
  return kept + json.slice(at);
}

/** Why a text must not be parsed: it is nested too deep, or too costly. */
export function problemOf(text: string): string | null {
  if (text.length <= JSON_DEPTH_MAX) return null;
  const nesting = new JsonNesting();
  nesting.feed(text);
  return nesting.problem === TOO_DEEP ? TOO_DEEP : costProblem(text, nesting);
}

/** An escaped ASCII letter; the backslashes before it escape each other. */
const ESCAPED_LETTER = /(?<!\\)((?:\\\\)*)\\u00([46][1-9a-fA-F]|[57][0-9aA])/g;

/** Whether letters, digits or `_` are escaped. Terminal colours, which are common, are other characters. */
export const hasEscapedLetters = (json: string): boolean => json.includes("\\u00") && /\\u00[3-7]/.test(json);

/** Equivalent JSON without escaped letters: a key may be written `"us\u0061ge"`. */
export const withoutEscapedLetters = (json: string): string =>
  json.replace(
    ESCAPED_LETTER,
    (_, slashes: string, hex: string) => slashes + String.fromCharCode(Number.parseInt(hex, 16)),
  );

export function endOfBrackets(text: string, at: number, nesting = new JsonNesting()): number {
  const end = nesting.read(text, at);
  if (end === -1) throw new JsonScanError(nesting.problem ?? "a bracket is not closed");
  return end;
}

/** How many members the objects of a JSON text have, repeated names included. */
export function countMembers(json: string): number {
  let members = 0;
  for (let at = 0; at < json.length; at++)
    if (json[at] === '"') at = endOfString(json, at + 1) - 1;
    else if (json[at] === ":") members++;
  return members;
}

/** Smaller texts are always quick to parse. */
const FREE_CHARS_MAX = 256 * 1024;
export const STRINGS_MAX = 50_000;
export const CONTAINERS_MAX = 50_000;
/** Numbers, brackets and white space: enough for 300,000 token ids. */
export const OUTSIDE_STRINGS_CHARS_MAX = 2 * 1024 * 1024;
/** Strings with escapes are copied character by character. */
export const ESCAPES_MAX = 300_000;

/** Why a text is too costly to parse: many small values block the process, long strings do not. */
export function costProblem(
  text: string,
  { strings, containers, outsideChars }: Pick<JsonNesting, "strings" | "containers" | "outsideChars">,
): string | null {
  if (text.length <= FREE_CHARS_MAX) return null;
  if (outsideChars > OUTSIDE_STRINGS_CHARS_MAX)
    return `it has more than ${OUTSIDE_STRINGS_CHARS_MAX} characters of numbers, brackets and white space`;
  if (containers > CONTAINERS_MAX) return `it has more than ${CONTAINERS_MAX} objects and arrays`;
  if (strings > STRINGS_MAX) return `it has more than ${STRINGS_MAX} strings`;
  // An escape takes two characters, so a short text cannot have too many.
  let escapes = text.length / 2 > ESCAPES_MAX ? 0 : Number.NEGATIVE_INFINITY;
  for (let at = text.indexOf("\\"); escapes >= 0 && at !== -1; at = text.indexOf("\\", at + 2))
    if (++escapes > ESCAPES_MAX) return `it has more than ${ESCAPES_MAX} escaped characters`;
  return null;
}
