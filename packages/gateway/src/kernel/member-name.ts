/**
 * How lenient servers may match a JSON member's name: ignoring case, letters that fold
 * to others (U+017F, U+212A, full width), or to `_` and `-`.
 */
export const plainName = (name: string): string =>
  name
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");
