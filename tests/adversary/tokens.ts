/**
 * The upstream's own tokenizer, and texts whose token count it knows exactly. The rule is close to o200k: short
 * words are one token, digits go three to a token, Chinese is 0.7 tokens a character, base64 two thirds of one.
 * It shares nothing with the gateway's estimate on purpose.
 */
const WORD_LETTERS = 6;
const DIGITS = 3;
const SYMBOLS = 2;
const HAN_TOKENS = 0.7;
const ENCODED_TOKENS = 0.66;
/** An unbroken run this long of letters and digits together is encoded data, not words. */
const ENCODED_RUN_MIN = 64;
const HAN_FROM = 0x2e80;

type Kind = "letter" | "digit" | "space" | "han" | "symbol";

function kindOf(code: number): Kind {
  if (code >= HAN_FROM) return "han";
  if (code >= 48 && code <= 57) return "digit";
  if (code === 32 || (code >= 9 && code <= 13)) return "space";
  if ((code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code >= 0xc0) return "letter";
  return "symbol";
}

const TOKENS: Record<Kind, (text: string) => number> = {
  letter: ({ length }) => Math.ceil(length / WORD_LETTERS),
  digit: ({ length }) => Math.ceil(length / DIGITS),
  symbol: ({ length }) => Math.ceil(length / SYMBOLS),
  han: ({ length }) => Math.ceil(length * HAN_TOKENS),
  // One space belongs to the word after it; a break or an indentation is a token of its own.
  space: (text) => (text === " " ? 0 : 1),
};

const ENCODED_RUN = new RegExp(`[A-Za-z0-9+/=_-]{${ENCODED_RUN_MIN},}`, "g");
const isEncoded = (run: string) => /[a-z]/.test(run) && /[A-Z]/.test(run) && /[0-9]/.test(run);

/** Tokens of a text, as this upstream bills them. */
export function countTokens(text: string): number {
  let tokens = 0;
  let at = 0;
  for (const match of text.matchAll(ENCODED_RUN)) {
    if (!isEncoded(match[0])) continue;
    tokens += countPlain(text.slice(at, match.index)) + Math.ceil(match[0].length * ENCODED_TOKENS);
    at = match.index + match[0].length;
  }
  return tokens + countPlain(at === 0 ? text : text.slice(at));
}

function countPlain(text: string): number {
  let tokens = 0;
  for (let at = 0; at < text.length; ) {
    const kind = kindOf(text.charCodeAt(at));
    let end = at + 1;
    while (end < text.length && kindOf(text.charCodeAt(end)) === kind) end++;
    tokens += TOKENS[kind](text.slice(at, end));
    at = end;
  }
  return tokens;
}

export const TEXT_KINDS = ["prose", "digits", "code", "han", "base64"] as const;
export type TextKind = (typeof TEXT_KINDS)[number];

/** Each begins with a space, so that the tokens of several in a row simply add up. */
const UNITS: Record<TextKind, string> = {
  prose: " the house by the river had been empty for years when two people came with a lamp and a dog",
  digits: " 314159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211",
  code: " const remaining = balance.points - held; // in points if (remaining < needed) return refuse(request, 402);",
  han: " 山川异域风月同天人有悲欢离合月有阴晴圆缺此事古难全但愿人长久千里共婵娟大江东去浪淘尽",
  base64: ` ${"iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4".repeat(2)}`,
};
/** A word of one token: fills what is left of a count. */
const FILLER = " lamp";

interface Unit {
  text: string;
  tokens: number;
}
const unitOf = (text: string): Unit => ({ text, tokens: countTokens(text) });
const UNIT: Record<TextKind, Unit> = {
  prose: unitOf(UNITS.prose),
  digits: unitOf(UNITS.digits),
  code: unitOf(UNITS.code),
  han: unitOf(UNITS.han),
  base64: unitOf(UNITS.base64),
};

/** A text of exactly so many tokens. */
export function textOf(kind: TextKind, tokens: number): string {
  const unit = UNIT[kind];
  const whole = Math.floor(tokens / unit.tokens);
  return unit.text.repeat(whole) + FILLER.repeat(tokens - whole * unit.tokens);
}

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
const MARK_LETTERS = 4;
/** The most pieces in one answer: four letters must tell apart every piece of every request in a round. */
export const PIECES_MAX = 1_024;

export interface Mark {
  /** The number of the request within its round. */
  request: number;
  piece: number;
}

/** The sign of one piece of an answer: a word of one token that occurs nowhere else. */
export function markOf({ request, piece }: Mark): string {
  let rest = request * PIECES_MAX + piece;
  let letters = "";
  for (let i = 0; i < MARK_LETTERS; i++) {
    letters = LETTERS[rest % LETTERS.length] + letters;
    rest = Math.floor(rest / LETTERS.length);
  }
  return `zq${letters}`;
}

const MARK = /zq([a-z]{4})/g;

/** The marks that stand in a text. */
export function* marksIn(text: string): Generator<Mark> {
  for (const [, letters] of text.matchAll(MARK)) {
    let number = 0;
    for (const letter of letters!) number = number * LETTERS.length + LETTERS.indexOf(letter);
    yield { request: Math.floor(number / PIECES_MAX), piece: number % PIECES_MAX };
  }
}
