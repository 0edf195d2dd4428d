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
/** The second half of a pair, which the first has told. */
export const NOTHING = 12;

/** From each UTF-16 unit up to the next one. */
const RANGES: readonly (readonly [from: number, kind: number])[] = [
  [0, SYMBOL],
  [9, SPACE],
  [14, SYMBOL],
  [32, SPACE],
  [33, SYMBOL],
  [48, DIGIT],
  [58, SYMBOL],
  [65, CAPITAL],
  [91, SYMBOL],
  [97, SMALL],
  [123, SYMBOL],
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
  // Pairs; emoji are from U+1F000 to U+1FFFF.
  [0xd800, RARE_4],
  [0xd83c, ASTRAL],
  [0xd840, RARE_4],
  [0xdc00, NOTHING],
  [0xe000, RARE_3],
  [0xfe00, MARK],
  [0xfe40, RARE_3],
  [0xff00, CJK],
  [0xff40, RARE_2],
  [0xffc0, RARE_3],
];

/** The kind of every UTF-16 unit. */
export function kindsOfUnits(): Uint8Array {
  const kinds = new Uint8Array(0x10000);
  for (const [from, kind] of RANGES) kinds.fill(kind, from);
  return kinds;
}
