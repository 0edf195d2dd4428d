/**
 * How servers that take JSON members at their word may read a name: without regard to case, to letters that fold
 * to others (U+017F, U+212A, full width), or to `_` and `-`.
 */
export const plainName = (name: string): string =>
  name
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");
