/** Longer than any name that a server knows. */
const LETTERS_MAX = 256;

/** A member's name as lenient servers may match it: without case, folded letters (U+017F, U+212A), `_` and `-`. */
export const plainName = (name: string): string =>
  name
    // Comes first: normalising a megabyte of combining marks takes minutes.
    .replace(/[\p{M}\p{P}\p{Z}]+/gu, "")
    .slice(0, LETTERS_MAX)
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");
