import { mediaIn } from "./media.ts";

// Kinds of characters, by what tokenizers make of them.
const SPACE = 0;
const SMALL = 1;
const CAPITAL = 2;
const DIGIT = 3;
const SYMBOL = 4;
/** Letters of scripts that tokenizers know words of. */
const SCRIPT = 5;
const CJK = 6;
/** The first half of an emoji. */
const EMOJI = 7;
const TAB = 8;
const LINE = 9;
/** One token each: marks, punctuation, letters of few languages, the frames of tables. */
const MARK = 10;
/** One token per byte of UTF-8. */
const RARE_2 = 11;
const RARE_3 = 12;
const RARE_4 = 13;
/** The second half of a surrogate pair; the first half has the weight. */
const NOTHING = 14;

/** The kind of each UTF-16 unit. */
const KINDS = new Uint8Array(0x10000).fill(RARE_3).fill(RARE_2, 0, 0x800).fill(SYMBOL, 0, 0x80);
/** Exceptions as pairs: the first unit of a range, and the one after its last. */
const RANGES: Readonly<Record<number, readonly number[]>> = {
  [SPACE]: [0x20, 0x21],
  [TAB]: [0x09, 0x0a],
  [LINE]: [0x0a, 0x0b],
  [DIGIT]: [0x30, 0x3a],
  [CAPITAL]: [0x41, 0x5b],
  [SMALL]: [0x61, 0x7b],
  // Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, Devanagari to Thai, Georgian, Vietnamese.
  [SCRIPT]: [
    0xc0, 0x180, 0x1a0, 0x1a2, 0x1af, 0x1b1, 0x218, 0x21c, 0x386, 0x3cf, 0x400, 0x460, 0x531, 0x58a, 0x5d0,
    0x5eb, 0x620, 0x670, 0x6a9, 0x6b0, 0x6cc, 0x6cd, 0x900, 0xe80, 0x10c0, 0x1100, 0x1e80, 0x1f00,
  ],
  [CJK]: [0x3000, 0x3100, 0x4e00, 0xa000, 0xac00, 0xd7c0, 0xff00, 0xff40],
  [MARK]: [
    0x0b, 0x0d, 0xa0, 0xc0, 0x300, 0x30d, 0x490, 0x500, 0x58a, 0x5d0, 0x600, 0x620, 0x670, 0x6a9, 0x6b0,
    0x6cc, 0x6cd, 0x700, 0x1000, 0x10c0, 0x1780, 0x1800, 0x2000, 0x2040, 0x2500, 0x2580, 0xfe00, 0xfe40,
  ],
  // Of three bytes, but two tokens: Lao, Tibetan, Ethiopic, accented Greek, arrows.
  [RARE_2]: [0xe80, 0x1000, 0x1200, 0x13c0, 0x1f00, 0x2000, 0x2040, 0x2500, 0x2580, 0x2800, 0xff40, 0xffc0],
  // Surrogates: emoji are from U+1F000 to U+1FFFF.
  [RARE_4]: [0xd800, 0xd83c, 0xd840, 0xdc00],
  [EMOJI]: [0xd83c, 0xd840],
  [NOTHING]: [0xdc00, 0xe000],
};
for (const [kind, ranges] of Object.entries(RANGES))
  for (let i = 0; i < ranges.length; i += 2) KINDS.fill(Number(kind), ranges[i], ranges[i + 1]);

/**
 * Token counts without a tokenizer, for holds and for answers whose upstream reports no usage. Each character weighs
 * by its kind and by the kind before it: tokenizers know words, but take apart what changes between small letters,
 * capitals and digits, as base64, hashes and ids do. Weights are thousandths of a token, fitted to o200k;
 * docs/metering.md has the measured error.
 */
function weightAfter(before: number, kind: number): number {
  switch (kind) {
    // Runs of white space are few tokens, but not where its kinds take turns; lines begin with it, and do not end with it.
    case SPACE:
      return before === SPACE || before === LINE ? 8 : before === TAB ? 500 : 160;
    case TAB:
      return before === TAB || before === LINE ? 63 : before === SPACE ? 1_000 : 160;
    case LINE:
      return before === LINE ? 63 : before === SPACE || before === TAB ? 1_000 : 160;
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
    case EMOJI:
      return 1_860;
    // Marks, and then by their bytes.
    default:
      return (kind - MARK + 1) * 1_000;
  }
}

/** Words are rarely longer than this; further letters weigh more, as in random text. */
const WORD_LETTERS = 14;
const RANDOM_LETTER_EXTRA = 330;

/** The state is the kind of the last character; small letters have a state per position in their word. */
const WORD_STATE = NOTHING - 1;
const STATES = WORD_STATE + WORD_LETTERS + 2;
const KIND_BITS = 4;
const STATE_BITS = 5;
const NEXT = ((1 << STATE_BITS) - 1) << KIND_BITS;
const WEIGHT_SHIFT = KIND_BITS + STATE_BITS;

/** By state and next kind: the next state, and in the bits above it the weight. A table avoids mispredicted branches. */
const STEPS = Uint32Array.from({ length: STATES << KIND_BITS }, (_, at) => {
  const state = at >> KIND_BITS;
  const kind = at % (1 << KIND_BITS);
  const letters = Math.max(0, state - WORD_STATE);
  if (kind >= NOTHING) return state << KIND_BITS;
  const weight = weightAfter(letters > 0 ? SMALL : state, kind);
  if (kind !== SMALL) return (weight << WEIGHT_SHIFT) | (kind << KIND_BITS);
  const next = WORD_STATE + Math.min(letters, WORD_LETTERS) + 1;
  const extra = letters >= WORD_LETTERS ? RANDOM_LETTER_EXTRA : 0;
  return ((weight + extra) << WEIGHT_SHIFT) | (next << KIND_BITS);
});

const BACKSLASH = 92;
const [SMALL_N, SMALL_T, SMALL_U] = [110, 116, 117];
const HEX_DIGITS = 4;
const hexDigit = (unit: number): number => (unit <= 57 ? unit - 48 : (unit | 32) - 87);

function hexAt(json: Uint8Array, at: number): number {
  let unit = 0;
  for (let digit = at; digit < at + HEX_DIGITS; digit++) unit = unit * 16 + hexDigit(json[digit] ?? 0);
  return unit & 0xffff;
}

/** The first UTF-16 unit of the multi-byte character at `at`; at its later bytes, a unit without weight. */
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

  addText(text: string): this {
    let state = this.#state;
    for (let i = 0; i < text.length; i++) {
      const step = STEPS[state | KINDS[text.charCodeAt(i)]!]!;
      this.weight += step >>> WEIGHT_SHIFT;
      state = step & NEXT;
    }
    this.#state = state;
    return this;
  }

  /** Adds the JSON text between two positions; an escape weighs as much as the character it stands for. */
  addJson(json: Uint8Array, start = 0, end = json.length): this {
    let state = this.#state;
    let weight = 0;
    for (let i = start; i < end; i++) {
      let unit = json[i]!;
      if (unit === BACKSLASH) {
        unit = json[++i] ?? BACKSLASH;
        if (unit === SMALL_U) {
          unit = hexAt(json, i + 1);
          i += HEX_DIGITS;
          // \b, \f, \n, \r and \t; the other escapes are the character itself.
        } else if (unit > 96) unit = unit === SMALL_T ? 9 : unit === SMALL_N ? 10 : 13;
      } else if (unit > 127) unit = unitAt(json, i);
      const step = STEPS[state | KINDS[unit]!]!;
      weight = (weight + (step >>> WEIGHT_SHIFT)) | 0;
      state = step & NEXT;
    }
    this.#state = state;
    this.weight += weight;
    return this;
  }
}

/** Counting takes about 5 ms a megabyte, so of longer texts only samples of this total size are counted. */
export const COUNTED_MAX = 1024 * 1024;
/** The same for prompts, which are counted before they are sent. */
const COUNTED_BYTES_OF_PROMPT = 16 * 1024;
const SAMPLES = 512;

/**
 * Reads a whole text, or samples of it if it is longer than `counted`: one at a random place in each of `SAMPLES` equal
 * stretches. They may reach into the next stretch, so every place is as likely as another, and nobody can put what
 * weighs most where it is not seen. Returns by what to multiply the weight of what was read.
 */
function readSamples(length: number, counted: number, read: (start: number, end: number) => void): number {
  const size = length <= Math.max(counted, SAMPLES) ? length : Math.max(1, Math.floor(counted / SAMPLES));
  const samples = size === length ? 1 : SAMPLES;
  const stretch = (length - size) / samples;
  for (let i = 0; i < samples; i++) {
    const start = Math.floor((i + Math.random()) * stretch);
    read(start, start + size);
  }
  return length / (samples * size) || 1;
}

/** Estimated tokens of a text, 0 only if it is empty. At most `countedMax` characters are counted. */
export function estimateTokens(text: string, countedMax = COUNTED_MAX): number {
  if (text === "") return 0;
  const counter = new TokenCounter();
  const factor = readSamples(text.length, countedMax, (start, end) =>
    counter.addText(text.slice(start, end)),
  );
  return Math.max(1, Math.ceil((counter.weight * factor) / 1000));
}

/** Estimated tokens of the prompt in a body. `mayHaveMedia: false` skips the search for images and audio. */
export function estimatePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  const { tokens, text } = mayHaveMedia ? mediaIn(body) : { tokens: 0, text: body };
  const counter = new TokenCounter();
  const factor = readSamples(text.length, COUNTED_BYTES_OF_PROMPT, (start, end) => {
    // What a character weighs depends on the word that it is in, so that is read first, without being counted.
    const { weight } = counter;
    counter.addJson(text, pastEscape(text, Math.max(0, start - WORD_LETTERS - 1)), start).weight = weight;
    counter.addJson(text, pastEscape(text, start), end);
  });
  return tokens + Math.ceil((counter.weight * factor) / 1000);
}

/** The position behind the escape that `at` is within, whose digits are no text; else `at`. */
function pastEscape(json: Uint8Array, at: number): number {
  let slash = at - 1;
  while (json[slash] !== BACKSLASH) if (--slash < at - HEX_DIGITS - 1) return at;
  // Backslashes escape each other; of a very long run only the end is looked at.
  let run = 1;
  while (run < 64 && json[slash - run] === BACKSLASH) run++;
  return run % 2 === 0 ? at : Math.max(at, slash + (json[slash + 1] === SMALL_U ? HEX_DIGITS + 2 : 2));
}
