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

const BYTES_PER_TOKEN = 4;
/** What one embedded image is taken for, whatever its size in bytes. */
export const IMAGE_TOKENS = 1000;
const DATA_URL_MARK = Buffer.from(";base64,");
const QUOTE = 34;

/**
 * An upper-bound-ish count of a request body's prompt tokens, from its bytes and without parsing it. Embedded
 * data URLs count as one image each: by their bytes, a photograph would seem to cost a novel.
 */
export function estimatePromptTokens(body: Uint8Array): number {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  let textBytes = bytes.length;
  let images = 0;
  for (let at = bytes.indexOf(DATA_URL_MARK); at !== -1; ) {
    const quote = bytes.indexOf(QUOTE, at);
    const end = quote === -1 ? bytes.length : quote;
    textBytes -= end - at;
    images++;
    at = bytes.indexOf(DATA_URL_MARK, end);
  }
  return Math.ceil(textBytes / BYTES_PER_TOKEN) + images * IMAGE_TOKENS;
}
