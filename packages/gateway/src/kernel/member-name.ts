/** How many letters a name has at most that any server knows. */
const LETTERS_MAX = 256;

/** How lenient servers may match a member's name: ignoring case, folded letters (U+017F, U+212A), `_` and `-`. */
export const plainName = (name: string): string =>
  name
    // Before the rest: to put a megabyte of marks in order takes minutes.
    .replace(/[\p{M}\p{P}\p{Z}]+/gu, "")
    .slice(0, LETTERS_MAX)
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");
