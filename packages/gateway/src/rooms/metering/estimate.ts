import {
  ASTRAL,
  CAPITAL,
  CJK,
  DIGIT,
  KINDS,
  kindOfCodePoint,
  kindOfOpening,
  kindOfSurrogate,
  MARK,
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

function kindOfAscii(byte: number): number {
  if (byte === 32 || (byte >= 9 && byte <= 13)) return SPACE;
  if (byte >= 97 && byte <= 122) return SMALL;
  if (byte >= 65 && byte <= 90) return CAPITAL;
  return byte >= 48 && byte <= 57 ? DIGIT : SYMBOL;
}

const LEAD_MIN = 0xc2;
const LEAD_MAX = 0xf4;
const STAND_IN_MIN = 0xf5;
/** After the kinds: for each kind before it, and each first byte of a character, what is known until its second. */
const states = KINDS + (LEAD_MAX - LEAD_MIN + 1) * 2;
/** Of a first byte after a script's letter, or after anything else: a word begins there. */
const stateOf = (lead: number, before: number): number =>
  KINDS + (lead - LEAD_MIN) * 2 + (before === SCRIPT ? 1 : 0);

/** For each byte in each state: its weight, and above that the state it leaves, shifted to find the next one by. */
const KIND_SHIFT = 8;
const NEXT_SHIFT = 16;
const step = (state: number, weight = 0): number => ((state << (KIND_SHIFT + NEXT_SHIFT)) | weight) >>> 0;

function stepAfter(state: number, byte: number): number {
  const isOpen = state >= KINDS;
  const before = isOpen ? ((state - KINDS) % 2 === 1 ? SCRIPT : SPACE) : state;
  if (byte < 0x80) return step(kindOfAscii(byte), weightAfter(before, kindOfAscii(byte)));
  if (byte >= STAND_IN_MIN) {
    const kind = SCRIPT + byte - STAND_IN_MIN;
    return kind < KINDS ? step(kind, weightAfter(before, kind)) : step(state);
  }
  if (byte >= LEAD_MIN) return step(stateOf(byte, before));
  if (!isOpen) return step(state);
  const kind = kindOfOpening(LEAD_MIN + ((state - KINDS) >> 1), byte);
  return step(kind, weightAfter(before, kind));
}

let steps: Uint32Array | null = null;

/** Made when it is first needed: it takes several milliseconds, which a start would wait for. */
function makeSteps(): Uint32Array {
  const made = new Uint32Array(states << KIND_SHIFT);
  for (let at = 0; at < made.length; at++) made[at] = stepAfter(at >> KIND_SHIFT, at & 255);
  return made;
}

const WEIGHT_MASK = (1 << NEXT_SHIFT) - 1;
const IN_WORD = SMALL << KIND_SHIFT;

const BACKSLASH = 92;
const SMALL_U = 117;
const ESCAPE_LENGTH = 6;
/** Bytes that stand in a table row for what an escape means. */
const AS_SPACE = 32;
const AS_NOTHING = 0x80;
const standIn = (kind: number): number => STAND_IN_MIN + kind - SCRIPT;

const hexDigit = (byte: number): number => (byte <= 57 ? byte - 48 : (byte | 32) - 87);

/** A byte of the kind that the escape after the backslash at `at` stands for. */
function escapedAs(json: Uint8Array, at: number): number {
  const letter = json[at + 1]!;
  // b, f, n, r and t are white space; the others stand for themselves.
  if (letter !== SMALL_U) return letter > 96 && letter < 117 ? AS_SPACE : letter;
  let code = 0;
  for (let digit = at + 2; digit < at + ESCAPE_LENGTH; digit++) code = code * 16 + hexDigit(json[digit]!);
  if (code < 128) return code;
  if (code < 0xd800 || code > 0xdfff) return standIn(kindOfCodePoint(code));
  // The two halves of a pair are one character.
  return code < 0xdc00 ? standIn(kindOfSurrogate(code)) : AS_NOTHING;
}

export class TokenCounter {
  #weight = 0;
  /** The kind of the last character, shifted, and the letters of the word that it is in. */
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
    this.#add(Buffer.from(text), { start: 0, end: Number.POSITIVE_INFINITY, isJson: false });
  }

  /** What stands in JSON between two positions; an escaped character weighs what it stands for. */
  addJson(json: Uint8Array, start = 0, end = json.length): void {
    this.#add(json, { start, end, isJson: true });
  }

  #add(
    bytes: Uint8Array,
    { start, end: until, isJson }: { start: number; end: number; isJson: boolean },
  ): void {
    steps ??= makeSteps();
    const table = steps;
    const end = Math.min(until, bytes.length);
    let before = this.#before;
    let weight = this.#weight;
    let wordStart = start - this.#letters;
    for (let i = start; i < end; i++) {
      let byte = bytes[i]!;
      if (byte === BACKSLASH && isJson) {
        byte = escapedAs(bytes, i);
        const moreBytes = bytes[i + 1] === SMALL_U ? ESCAPE_LENGTH - 1 : 1;
        i += moreBytes;
        // However it is written, it is one character of its word.
        wordStart += moreBytes;
      }
      const step = table[before | byte]!;
      weight += step & WEIGHT_MASK;
      before = step >>> NEXT_SHIFT;
      if (before !== IN_WORD) {
        const letters = i - wordStart;
        if (letters > WORD_LETTERS_MAX) weight += (letters - WORD_LETTERS_MAX) * SENSELESS_LETTER_MORE;
        wordStart = i + 1;
      }
    }
    this.#before = before;
    this.#weight = weight;
    this.#letters = Math.max(0, end - wordStart);
  }
}

/** Counting takes some 5 ms a megabyte; of what is longer than this, parts of it are counted that come to as much. */
export const COUNTED_MAX = 2 * 1024 * 1024;
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

/** What a request body consists of, for a count of its tokens. */
const partsOf = (body: Uint8Array, mayHaveMedia: boolean) =>
  mayHaveMedia ? mediaIn(body) : { tokens: 0, texts: [{ start: 0, end: body.length }] };

/** Tokens of the prompt in a body. `mayHaveMedia: false` saves looking for images and sounds. */
export function estimatePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  const { tokens, texts } = partsOf(body, mayHaveMedia);
  const textBytes = lengthOf(texts);
  if (textBytes > COUNTED_MAX) {
    const densityOf = (at: number, size: number) => densityAt(body, texts, at, size);
    return tokens + Math.ceil(totalByParts(textBytes, COUNTED_MAX, densityOf));
  }
  const counter = new TokenCounter();
  for (const { start, end } of texts) counter.addJson(body, start, end);
  return tokens + counter.tokens;
}

/** Up to this size a body is read as a whole for its hold; of a larger one, samples that come to as much. */
const READ_WHOLE_BYTES_MAX = 1_024;
const SAMPLES = 16;
const SAMPLE_BYTES = READ_WHOLE_BYTES_MAX / SAMPLES;
/** How many standard errors are added to the mean of the samples. */
const MARGIN_ERRORS = 2;
/** Least weight of a sample, as of the lightest text: else a body of mostly white space seems to have no prompt. */
const SAMPLE_DENSITY_MIN = 0.15;

/** The same for a hold, by random samples; the more they differ, the more is added. */
export function samplePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  if (body.length <= READ_WHOLE_BYTES_MAX) return estimatePromptTokens(body, mayHaveMedia);
  const { tokens, texts } = partsOf(body, mayHaveMedia);
  const textBytes = lengthOf(texts);
  let sum = 0;
  let squares = 0;
  for (let n = 0; n < SAMPLES; n++) {
    const position = Math.floor(Math.random() * textBytes);
    const density = Math.max(SAMPLE_DENSITY_MIN, densityAt(body, texts, position, SAMPLE_BYTES));
    sum += density;
    squares += density * density;
  }
  const mean = sum / SAMPLES;
  const error = Math.sqrt(Math.max(0, squares / SAMPLES - mean * mean) / SAMPLES);
  return tokens + Math.ceil((mean + MARGIN_ERRORS * error) * textBytes);
}

const lengthOf = (texts: readonly Span[]): number =>
  texts.reduce((sum, { start, end }) => sum + end - start, 0);

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
