/** Kinds of characters by what tokenizers make of them: known scripts take a fraction of a token, others one a byte. */
export const SPACE = 0;
export const SMALL = 1;
export const CAPITAL = 2;
export const DIGIT = 3;
export const SYMBOL = 4;
/** Letters of scripts that words are written in. */
export const SCRIPT = 5;
export const CJK = 6;
/** Beyond the basic plane: emoji. */
export const ASTRAL = 7;
/** A token of its own each: marks, punctuation, letters that only some languages have. */
export const MARK = 8;
/** As many tokens as bytes. */
export const RARE_2 = 9;
export const RARE_3 = 10;
export const RARE_4 = 11;
export const KINDS = 12;

/** From each code point up to the next one. Beyond U+0800 the steps are those of 64, which two bytes of UTF-8 tell. */
const RANGES: readonly (readonly [from: number, kind: number])[] = [
  [0x80, RARE_2],
  [0xa0, MARK],
  [0xc0, SCRIPT],
  [0x180, RARE_2],
  // Vietnamese and Romanian.
  [0x1a0, SCRIPT],
  [0x1a2, RARE_2],
  [0x1af, SCRIPT],
  [0x1b1, RARE_2],
  [0x218, SCRIPT],
  [0x21c, RARE_2],
  [0x300, MARK],
  [0x30d, RARE_2],
  // Greek, Cyrillic, Armenian, Hebrew, Arabic.
  [0x386, SCRIPT],
  [0x3cf, RARE_2],
  [0x400, SCRIPT],
  [0x460, RARE_2],
  [0x490, MARK],
  [0x500, RARE_2],
  [0x531, SCRIPT],
  [0x58a, MARK],
  [0x5d0, SCRIPT],
  [0x5eb, RARE_2],
  [0x600, MARK],
  [0x620, SCRIPT],
  [0x670, MARK],
  [0x6a9, SCRIPT],
  [0x6b0, MARK],
  [0x6cc, SCRIPT],
  [0x6cd, MARK],
  [0x700, RARE_2],
  [0x800, RARE_3],
  // From Devanagari to Thai; Lao and Tibetan are not learned.
  [0x900, SCRIPT],
  [0xe80, RARE_2],
  [0x1000, MARK],
  // Georgian.
  [0x10c0, SCRIPT],
  [0x1100, RARE_3],
  [0x1200, RARE_2],
  [0x13c0, RARE_3],
  [0x1780, MARK],
  [0x1800, RARE_3],
  // Vietnamese, then Greek with all its accents.
  [0x1e80, SCRIPT],
  [0x1f00, RARE_2],
  [0x2000, MARK],
  [0x2040, RARE_2],
  // Frames of tables.
  [0x2500, MARK],
  [0x2580, RARE_2],
  [0x2800, RARE_3],
  [0x3000, CJK],
  [0x3100, RARE_3],
  [0x4e00, CJK],
  [0xa000, RARE_3],
  [0xac00, CJK],
  [0xd7c0, RARE_3],
  [0xfe00, MARK],
  [0xfe40, RARE_3],
  [0xff00, CJK],
  [0xff40, RARE_2],
  [0xffc0, RARE_3],
];

/** The kind of a character from U+0080 up to U+FFFF. */
export function kindOfCodePoint(codePoint: number): number {
  let kind = RARE_2;
  for (const [from, next] of RANGES) {
    if (codePoint < from) break;
    kind = next;
  }
  return kind;
}

/** The kind of the character that begins with these two bytes of UTF-8. */
export function kindOfOpening(lead: number, second: number): number {
  if (lead < 0xe0) return kindOfCodePoint(((lead & 0x1f) << 6) | (second & 0x3f));
  if (lead < 0xf0) return kindOfCodePoint(((lead & 0x0f) << 12) | ((second & 0x3f) << 6));
  // Emoji are from U+1F000 to U+1FFFF.
  return lead === 0xf0 && second === 0x9f ? ASTRAL : RARE_4;
}

/** The same of the first half of a surrogate pair, by its upper byte and the lower one. */
export const kindOfSurrogate = (code: number): number => (code >= 0xd83c && code <= 0xd83f ? ASTRAL : RARE_4);
