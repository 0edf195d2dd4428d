import {
  ASTRAL,
  CAPITAL,
  CJK,
  DIGIT,
  kindsOfUnits,
  MARK,
  NOTHING,
  RARE_2,
  RARE_3,
  SCRIPT,
  SMALL,
  SPACE,
  SYMBOL,
} from "./characters.ts";
import { mediaIn, type Span } from "./media.ts";

/**
 * Token counts without a tokenizer, for holds and for answers whose upstream reports no usage. Each character weighs
 * by its kind and by the kind before it: tokenizers know words, but take apart what changes between small letters,
 * capitals and digits, as base64, hashes and ids do. Weights are thousandths of a token, fitted to o200k;
 * docs/metering.md has the measured error.
 */
function weightAfter(before: number, kind: number): number {
  switch (kind) {
    case SPACE:
      return before === SPACE ? 0 : 160;
    case SMALL:
      return before === DIGIT ? 470 : 220;
    case CAPITAL:
      return before === CAPITAL ? 500 : before === SMALL ? 1_400 : before === DIGIT ? 300 : 60;
    case DIGIT:
      return before === DIGIT ? 335 : 1_480;
    case SYMBOL:
      return 530;
    case SCRIPT:
      return before === SCRIPT ? 220 : 380;
    case CJK:
      return 800;
    case ASTRAL:
      return 1_860;
    case MARK:
      return 1_000;
    case RARE_2:
      return 2_000;
    case RARE_3:
      return 3_000;
    default:
      return 4_000;
  }
}

/** Few words have more letters than this; further letters weigh like random ones. */
const WORD_LETTERS_MAX = 14;
const SENSELESS_LETTER_MORE = 330;

const BEFORE_SHIFT = 4;
const WEIGHTS = Uint16Array.from({ length: NOTHING << BEFORE_SHIFT }, (_, at) =>
  weightAfter(at >> BEFORE_SHIFT, at & 15),
);
/** Made when it is first needed. */
let kinds: Uint8Array | null = null;

const BACKSLASH = 92;
const SMALL_U = 117;
const HEX_DIGITS = 4;
const hexDigit = (unit: number): number => (unit <= 57 ? unit - 48 : (unit | 32) - 87);

/** What the escape after the backslash at `at` stands for. */
function escapedAt(text: string, at: number): number {
  const letter = text.charCodeAt(at + 1);
  // b, f, n, r and t are white space; the others stand for themselves.
  if (letter !== SMALL_U) return letter > 96 && letter < 117 ? 32 : letter;
  let unit = 0;
  for (let digit = at + 2; digit < at + 2 + HEX_DIGITS; digit++)
    unit = unit * 16 + hexDigit(text.charCodeAt(digit));
  return unit;
}

export class TokenCounter {
  #weight = 0;
  /** The kind of the last character, and the letters of the word that it is in. */
  #before = SPACE;
  #letters = 0;

  get weight(): number {
    return this.#weight + Math.max(0, this.#letters - WORD_LETTERS_MAX) * SENSELESS_LETTER_MORE;
  }

  get tokens(): number {
    return Math.ceil(this.weight / 1000);
  }

  addTokens(tokens: number): void {
    this.#weight += tokens * 1000;
  }

  addText(text: string): void {
    this.#add(text, false);
  }

  /** What stands in JSON between two positions; an escaped character weighs what it stands for. */
  addJson(json: Uint8Array, start = 0, end = json.length): void {
    this.#add(Buffer.from(json.buffer, json.byteOffset, json.byteLength).toString("utf8", start, end), true);
  }

  #add(text: string, isJson: boolean): void {
    kinds ??= kindsOfUnits();
    const table = kinds;
    let before = this.#before;
    let weight = this.#weight;
    let wordStart = -this.#letters;
    for (let i = 0; i < text.length; i++) {
      let unit = text.charCodeAt(i);
      if (unit === BACKSLASH && isJson) {
        unit = escapedAt(text, i);
        const more = text.charCodeAt(i + 1) === SMALL_U ? 1 + HEX_DIGITS : 1;
        i += more;
        // However it is written, it is one character of its word.
        wordStart += more;
      }
      const kind = table[unit] ?? SPACE;
      if (kind !== NOTHING) {
        weight += WEIGHTS[(before << BEFORE_SHIFT) | kind]!;
        before = kind;
      }
      if (before !== SMALL) {
        const letters = i - wordStart;
        if (letters > WORD_LETTERS_MAX) weight += (letters - WORD_LETTERS_MAX) * SENSELESS_LETTER_MORE;
        wordStart = i + 1;
      }
    }
    this.#before = before;
    this.#weight = weight;
    this.#letters = Math.max(0, text.length - wordStart);
  }
}

/** Counting takes some 5 ms a megabyte; of what is longer than this, parts of it are counted that come to as much. */
export const COUNTED_MAX = 1024 * 1024;
const PARTS = 64;

/** A total over all, by the density of `PARTS` parts, one at a random place in each of as many equal stretches. */
function totalByParts(
  length: number,
  counted: number,
  densityOf: (at: number, size: number) => number,
): number {
  const stretch = length / PARTS;
  const size = Math.max(1, Math.floor(counted / PARTS));
  let sum = 0;
  for (let part = 0; part < PARTS; part++) {
    const at = Math.floor(part * stretch + Math.random() * Math.max(0, stretch - size));
    sum += densityOf(at, size);
  }
  return (sum / PARTS) * length;
}

/** Estimated tokens of a text; 0 only for an empty one. Of a text longer than `countedMax` only so much is counted. */
export function estimateTokens(text: string, countedMax = COUNTED_MAX): number {
  if (text === "") return 0;
  const weigh = (part: string) => {
    const counter = new TokenCounter();
    counter.addText(part);
    return counter.weight;
  };
  const weight =
    text.length <= Math.max(countedMax, PARTS)
      ? weigh(text)
      : totalByParts(text.length, countedMax, (at, size) => weigh(text.slice(at, at + size)) / size);
  return Math.max(1, Math.ceil(weight / 1000));
}

/** Tokens of the prompt in a body. `mayHaveMedia: false` saves looking for images and sounds. */
export function estimatePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  const { tokens, texts } = mayHaveMedia
    ? mediaIn(body)
    : { tokens: 0, texts: [{ start: 0, end: body.length }] };
  const textBytes = texts.reduce((sum, { start, end }) => sum + end - start, 0);
  if (textBytes > COUNTED_MAX) {
    const densityOf = (at: number, size: number) => densityAt(body, texts, at, size);
    return tokens + Math.ceil(totalByParts(textBytes, COUNTED_MAX, densityOf));
  }
  const counter = new TokenCounter();
  for (const { start, end } of texts) counter.addJson(body, start, end);
  return tokens + counter.tokens;
}

function densityAt(body: Uint8Array, texts: readonly Span[], position: number, bytes: number): number {
  let at = position;
  for (const text of texts) {
    const length = text.end - text.start;
    if (at >= length) {
      at -= length;
      continue;
    }
    const start = Math.max(text.start, Math.min(text.start + at, text.end - bytes));
    const end = Math.min(text.end, start + bytes);
    const counter = new TokenCounter();
    counter.addJson(body, start, end);
    return counter.weight / 1000 / (end - start);
  }
  return 0;
}
