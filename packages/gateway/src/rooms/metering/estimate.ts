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

/** A state is the kind of the last character; for small letters there is one for each length of their word. */
const WORD_STATE = NOTHING - 1;
const STATES = WORD_STATE + WORD_LETTERS_MAX + 2;
const KIND_BITS = 4;
const STATE_BITS = 5;
const KINDS = 1 << KIND_BITS;
const NEXT = ((1 << STATE_BITS) - 1) << KIND_BITS;
const WEIGHT_SHIFT = KIND_BITS + STATE_BITS;

/** For each state and each kind that may follow: the state after it, and above that what it weighs. No branch is guessed wrong at the end of a word. */
const STEPS = Uint32Array.from({ length: STATES << KIND_BITS }, (_, at) => {
  const state = at >> KIND_BITS;
  const kind = at % KINDS;
  const letters = Math.max(0, state - WORD_STATE);
  if (kind >= NOTHING) return state << KIND_BITS;
  const weight = weightAfter(letters > 0 ? SMALL : state, kind);
  if (kind !== SMALL) return (weight << WEIGHT_SHIFT) | (kind << KIND_BITS);
  const next = WORD_STATE + Math.min(letters, WORD_LETTERS_MAX) + 1;
  const more = letters >= WORD_LETTERS_MAX ? SENSELESS_LETTER_MORE : 0;
  return ((weight + more) << WEIGHT_SHIFT) | (next << KIND_BITS);
});
/** Made when it is first needed. */
let kinds: Uint8Array | null = null;

const BACKSLASH = 92;
const SMALL_U = 117;
const HEX_DIGITS = 4;
const hexDigit = (unit: number): number => (unit <= 57 ? unit - 48 : (unit | 32) - 87);

function hexAt(json: Uint8Array, at: number): number {
  let unit = 0;
  for (let digit = at; digit < at + HEX_DIGITS; digit++) unit = unit * 16 + hexDigit(json[digit] ?? 0);
  return unit & 0xffff;
}

/** The first UTF-16 unit of the character whose first byte, of several, is at `at`; at the bytes after that, one that weighs nothing. */
function unitAt(bytes: Uint8Array, at: number): number {
  const more = (ahead: number) => bytes[at + ahead]! & 63;
  const lead = bytes[at]!;
  if (lead < 0xc0) return 0xdc00;
  if (lead < 0xe0) return ((lead & 31) << 6) | more(1);
  if (lead < 0xf0) return ((lead & 15) << 12) | (more(1) << 6) | more(2);
  return 0xd7c0 + (((lead & 7) << 8) | (more(1) << 2) | (more(2) >> 4));
}

export class TokenCounter {
  weight = 0;
  #state = SPACE << KIND_BITS;

  get tokens(): number {
    return Math.ceil(this.weight / 1000);
  }

  addTokens(tokens: number): void {
    this.weight += tokens * 1000;
  }

  addText(text: string): void {
    kinds ??= kindsOfUnits();
    let state = this.#state;
    for (let i = 0; i < text.length; i++) {
      const step = STEPS[state | kinds[text.charCodeAt(i)]!]!;
      this.weight += step >>> WEIGHT_SHIFT;
      state = step & NEXT;
    }
    this.#state = state;
  }

  /** What stands in JSON between two positions; an escaped character weighs what it stands for. */
  addJson(json: Uint8Array, start = 0, end = json.length): void {
    kinds ??= kindsOfUnits();
    const table = kinds;
    let state = this.#state;
    let weight = 0;
    for (let i = start; i < end; i++) {
      let unit = json[i]!;
      if (unit === BACKSLASH) {
        unit = json[++i] ?? BACKSLASH;
        if (unit === SMALL_U) {
          unit = hexAt(json, i + 1);
          i += HEX_DIGITS;
          // b, f, n, r and t are white space; the others stand for themselves.
        } else if (unit > 96) unit = 32;
      } else if (unit > 127) unit = unitAt(json, i);
      const step = STEPS[state | table[unit]!]!;
      weight = (weight + (step >>> WEIGHT_SHIFT)) | 0;
      state = step & NEXT;
    }
    this.#state = state;
    this.weight += weight;
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
