/** How lenient servers may match a member's name: ignoring case, folded letters (U+017F, U+212A), `_` and `-`. */
export const plainName = (name: string): string =>
  name
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");
