import { mediaIn } from "./media.ts";

/**
 * Token counts without a tokenizer: for streams whose upstream reports no usage, and for the hold that is
 * taken before a request is sent. Weights are thousandths of a token a character, fitted to o200k;
 * docs/metering.md has the measured error.
 */
const LETTER = 232;
const SPACE = 60;
const DIGIT = 590;
const SYMBOL = 470;
const CJK = 700;
const OTHER_SCRIPT = 200;
/** A run this long without a break is encoded data (hashes, base64), not words. */
const ENCODED_RUN_MIN = 64;
const ENCODED = 680;

const ASCII = Uint16Array.from({ length: 128 }, (_, code) => {
  if (code === 32 || (code >= 9 && code <= 13)) return SPACE;
  if (code >= 48 && code <= 57) return DIGIT;
  if ((code >= 65 && code <= 90) || (code >= 97 && code <= 122)) return LETTER;
  return SYMBOL;
});
/** Characters that a base64 or hexadecimal text consists of. */
const CONTINUES_RUN = Uint8Array.from({ length: 128 }, (_, code) =>
  /[A-Za-z0-9+/=_-]/.test(String.fromCharCode(code)) ? 1 : 0,
);

/** Estimated tokens of a text; 0 only for an empty one. */
export function estimateTokens(text: string): number {
  let weight = 0;
  let run = 0;
  let runWeight = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 128 && CONTINUES_RUN[code] === 1) {
      run++;
      runWeight += ASCII[code]!;
      continue;
    }
    weight += run >= ENCODED_RUN_MIN ? run * ENCODED : runWeight;
    run = 0;
    runWeight = 0;
    if (code < 128) weight += ASCII[code]!;
    // Han, kana, Hangul, fullwidth forms, and both halves of everything beyond the basic plane.
    else weight += code >= 0x2e80 ? CJK : OTHER_SCRIPT;
  }
  weight += run >= ENCODED_RUN_MIN ? run * ENCODED : runWeight;
  return Math.ceil(weight / 1000);
}

/** What a character weighs, by the first byte of its UTF-8 form; bytes that continue one weigh nothing. */
const UTF8 = Uint16Array.from({ length: 256 }, (_, byte) => {
  if (byte < 128) return ASCII[byte]!;
  if (byte < 0xc0) return 0;
  // Three bytes from U+3000 on are Han, kana and Hangul; four are two halves of a pair.
  return byte < 0xe3 ? OTHER_SCRIPT : byte < 0xf0 ? CJK : 2 * CJK;
});
const BACKSLASH = 92;
const SMALL_U = 117;
const ESCAPE_LENGTH = 6;
/** One of the two characters of `\n` and its like is not there for the model. */
const ESCAPE = 235;

const hexDigit = (byte: number): number => (byte <= 57 ? byte - 48 : (byte | 32) - 87);

/** The weight of the JSON text between two positions, in thousandths of a token. */
function weightOf(json: Uint8Array, start: number, end: number): number {
  let weight = 0;
  let run = 0;
  let runWeight = 0;
  for (let i = start; i < end; i++) {
    const byte = json[i]!;
    if (byte < 128 && CONTINUES_RUN[byte] === 1) {
      run++;
      runWeight += ASCII[byte]!;
      continue;
    }
    weight += run >= ENCODED_RUN_MIN ? run * ENCODED : runWeight;
    run = 0;
    runWeight = 0;
    if (byte !== BACKSLASH) weight += UTF8[byte]!;
    else if (json[i + 1] !== SMALL_U || i + ESCAPE_LENGTH > end) weight += ESCAPE;
    else {
      // An escaped character weighs what it stands for: 2e80 and beyond, or another script.
      const high = hexDigit(json[i + 2]!) * 16 + hexDigit(json[i + 3]!);
      weight += high >= 0x2f ? CJK : OTHER_SCRIPT;
      i += ESCAPE_LENGTH - 1;
    }
  }
  return weight + (run >= ENCODED_RUN_MIN ? run * ENCODED : runWeight);
}

/** Up to this size a body is read as a whole for its hold; of a larger one, samples that come to as much. */
const READ_WHOLE_BYTES_MAX = 1_024;
const SAMPLES = 16;
const SAMPLE_BYTES = READ_WHOLE_BYTES_MAX / SAMPLES;

/**
 * Tokens of the prompt in a request body, from its text and from the images and sounds in it. `mayHaveMedia: false`
 * says that there are none, which saves looking for them.
 */
export function estimatePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  if (!mayHaveMedia) return Math.ceil(weightOf(body, 0, body.length) / 1000);
  const { tokens, texts } = mediaIn(body);
  const weight = texts.reduce((sum, { start, end }) => sum + weightOf(body, start, end), 0);
  return tokens + Math.ceil(weight / 1000);
}

/**
 * The same for a hold, which must cost next to nothing: a long text is weighed by samples. They are taken at random,
 * so that no one can put the heavy parts of a prompt between them.
 */
export function samplePromptTokens(body: Uint8Array, mayHaveMedia = true): number {
  if (body.length <= READ_WHOLE_BYTES_MAX) return estimatePromptTokens(body, mayHaveMedia);
  const { tokens, texts } = mayHaveMedia
    ? mediaIn(body)
    : { tokens: 0, texts: [{ start: 0, end: body.length }] };
  const textBytes = texts.reduce((sum, { start, end }) => sum + end - start, 0);
  let weight = 0;
  let sampled = 0;
  for (let n = 0; n < SAMPLES; n++) {
    let at = Math.floor(Math.random() * textBytes);
    const text = texts.find(({ start, end }) => {
      if (at < end - start) return true;
      at -= end - start;
      return false;
    });
    if (!text) continue;
    const start = Math.max(text.start, Math.min(text.start + at, text.end - SAMPLE_BYTES));
    const end = Math.min(text.end, start + SAMPLE_BYTES);
    weight += weightOf(body, start, end);
    sampled += end - start;
  }
  return tokens + Math.ceil((weight / Math.max(1, sampled) / 1000) * textBytes);
}
