import { mediaIn, type Span } from "./media.ts";

/**
 * Token counts without a tokenizer, for holds and for answers whose upstream reports no usage. Each character weighs
 * by its kind and by the kind before it: tokenizers know words, but take apart what changes between small letters,
 * capitals and digits, as base64, hashes and ids do. Weights are thousandths of a token, fitted to o200k;
 * docs/metering.md has the measured error.
 */
const SPACE = 0;
const SMALL = 1;
const CAPITAL = 2;
const DIGIT = 3;
const SYMBOL = 4;
const SCRIPT = 5;
const CJK = 6;
/** Beyond the basic plane: mostly emoji. */
const ASTRAL = 7;
/** A byte of UTF-8 that goes on with the character before it. */
const CONTINUATION = 8;
const KINDS = 8;

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
    default:
      return 1_860;
  }
}

/** Few words have more letters than this; what goes on beyond weighs as letters without a meaning. */
const WORD_LETTERS_MAX = 14;
const SENSELESS_LETTER_MORE = 330;

function kindOf(byte: number): number {
  if (byte === 32 || (byte >= 9 && byte <= 13)) return SPACE;
  if (byte >= 97 && byte <= 122) return SMALL;
  if (byte >= 65 && byte <= 90) return CAPITAL;
  if (byte >= 48 && byte <= 57) return DIGIT;
  if (byte < 128) return SYMBOL;
  if (byte < 0xc0) return CONTINUATION;
  // Three bytes from U+3000 on are Han, kana and Hangul.
  return byte < 0xe3 ? SCRIPT : byte < 0xf0 ? CJK : ASTRAL;
}

/** For each byte after each kind: its weight, and above that the kind it leaves, shifted to find the next one by. */
const KIND_SHIFT = 8;
const NEXT_SHIFT = 16;
const STEPS = Uint32Array.from({ length: KINDS << KIND_SHIFT }, (_, at) => {
  const before = at >> KIND_SHIFT;
  const kind = kindOf(at & 255);
  return kind === CONTINUATION
    ? before << (KIND_SHIFT + NEXT_SHIFT)
    : (kind << (KIND_SHIFT + NEXT_SHIFT)) | weightAfter(before, kind);
});
const WEIGHT_MASK = (1 << NEXT_SHIFT) - 1;
const IN_WORD = SMALL << KIND_SHIFT;

const BACKSLASH = 92;
const SMALL_U = 117;
const ESCAPE_LENGTH = 6;
/** Bytes that stand in a table row for what an escape means. */
const AS_SPACE = 32;
const AS_SCRIPT = 0xd0;
const AS_CJK = 0xe4;
const AS_ASTRAL = 0xf0;
const AS_NOTHING = 0x80;

const hexDigit = (byte: number): number => (byte <= 57 ? byte - 48 : (byte | 32) - 87);

/** A byte of the kind that the escape after the backslash at `at` stands for. */
function escapedAs(json: Uint8Array, at: number): number {
  const letter = json[at + 1]!;
  // b, f, n, r and t are white space; the others stand for themselves.
  if (letter !== SMALL_U) return letter > 96 && letter < 117 ? AS_SPACE : letter;
  const high = hexDigit(json[at + 2]!) * 16 + hexDigit(json[at + 3]!);
  if (high === 0) {
    const low = hexDigit(json[at + 4]!) * 16 + hexDigit(json[at + 5]!);
    return low < 128 ? low : AS_SCRIPT;
  }
  // The two halves of a pair are one character.
  if (high >= 0xd8 && high <= 0xdf) return high < 0xdc ? AS_ASTRAL : AS_NOTHING;
  return high >= 0x2f ? AS_CJK : AS_SCRIPT;
}

/** Counts the tokens of a text that comes in pieces. */
export class TokenCounter {
  #weight = 0;
  /** The kind of the last character, shifted, and the letters of the word that it is in. */
  #before = SPACE;
  #letters = 0;

  /** In thousandths of a token. */
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
    const end = Math.min(until, bytes.length);
    let before = this.#before;
    let weight = this.#weight;
    let wordStart = start - this.#letters;
    for (let i = start; i < end; i++) {
      let byte = bytes[i]!;
      if (byte === BACKSLASH && isJson) {
        byte = escapedAs(bytes, i);
        i += bytes[i + 1] === SMALL_U ? ESCAPE_LENGTH - 1 : 1;
      }
      const step = STEPS[before | byte]!;
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

/** Estimated tokens of a text; 0 only for an empty one. */
export function estimateTokens(text: string): number {
  if (text === "") return 0;
  const counter = new TokenCounter();
  counter.addText(text);
  return Math.max(1, counter.tokens);
}

/** What a request body consists of, for a count of its tokens. */
const partsOf = (body: Uint8Array, mayHaveMedia: boolean) =>
  mayHaveMedia ? mediaIn(body) : { tokens: 0, texts: [{ start: 0, end: body.length }] };

/**
 * Tokens of the prompt in a request body, from its text and from the images and sounds in it. `mayHaveMedia: false`
 * says that there are none, which saves looking for them.
 */
export function estimatePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  const { tokens, texts } = partsOf(body, mayHaveMedia);
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

/**
 * The same for a hold, which must cost next to nothing: a long text is weighed by samples, and the more they differ,
 * the more is added for what lies between them. They are taken at random, so that no one can put the heavy parts of
 * a prompt there.
 */
export function samplePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  if (body.length <= READ_WHOLE_BYTES_MAX) return estimatePromptTokens(body, mayHaveMedia);
  const { tokens, texts } = partsOf(body, mayHaveMedia);
  const textBytes = texts.reduce((sum, { start, end }) => sum + end - start, 0);
  let sum = 0;
  let squares = 0;
  for (let n = 0; n < SAMPLES; n++) {
    const density = densityAt(body, texts, Math.floor(Math.random() * textBytes));
    sum += density;
    squares += density * density;
  }
  const mean = sum / SAMPLES;
  const error = Math.sqrt(Math.max(0, squares / SAMPLES - mean * mean) / SAMPLES);
  return tokens + Math.ceil((mean + MARGIN_ERRORS * error) * textBytes);
}

/** Tokens a byte in the sample at a position of the text. */
function densityAt(body: Uint8Array, texts: readonly Span[], position: number): number {
  let at = position;
  for (const text of texts) {
    const length = text.end - text.start;
    if (at >= length) {
      at -= length;
      continue;
    }
    const start = Math.max(text.start, Math.min(text.start + at, text.end - SAMPLE_BYTES));
    const end = Math.min(text.end, start + SAMPLE_BYTES);
    const counter = new TokenCounter();
    counter.addJson(body, start, end);
    return counter.weight / 1000 / (end - start);
  }
  return 0;
}
