/** How much work a JSON text makes, before it is parsed: many small values hold up the process, long strings do not. */
import { endOfString } from "./json-scan.ts";

/** Smaller texts cannot hold anything up. */
const FREE_CHARS_MAX = 256 * 1024;
export const STRINGS_MAX = 50_000;
export const CONTAINERS_MAX = 50_000;
/** Numbers, brackets and white space: room for 300,000 token ids. */
export const OUTSIDE_STRINGS_CHARS_MAX = 2 * 1024 * 1024;
/** Backslashes in strings: a text with them is copied character by character. */
export const ESCAPES_MAX = 300_000;

const QUOTE = '"';
const BACKSLASH = "\\";
const OPEN_BRACKET = 91;
const OPEN_BRACE = 123;

/** What makes the text too costly to read; null when nothing does. */
export function costProblem(text: string): string | null {
  if (text.length <= FREE_CHARS_MAX) return null;
  let escapes = 0;
  for (let at = text.indexOf(BACKSLASH); at !== -1; at = text.indexOf(BACKSLASH, at + 2))
    if (++escapes > ESCAPES_MAX) return `it has more than ${ESCAPES_MAX} escaped characters`;
  let strings = 0;
  let containers = 0;
  let outsideChars = 0;
  for (let at = 0; at < text.length; ) {
    const start = text.indexOf(QUOTE, at);
    const end = start === -1 ? text.length : start;
    outsideChars += end - at;
    if (outsideChars > OUTSIDE_STRINGS_CHARS_MAX)
      return `it has more than ${OUTSIDE_STRINGS_CHARS_MAX} characters of numbers, brackets and white space`;
    for (; at < end; at++) {
      const char = text.charCodeAt(at);
      if (char === OPEN_BRACKET || char === OPEN_BRACE) containers++;
    }
    if (containers > CONTAINERS_MAX) return `it has more than ${CONTAINERS_MAX} objects and arrays`;
    if (start === -1) break;
    if (++strings > STRINGS_MAX) return `it has more than ${STRINGS_MAX} strings`;
    at = endOfString(text, start + 1);
    if (at === -1) break;
  }
  return null;
}
