/**
 * Marks thoughts of one vendor's model in another's API, which only the vendor could sign. Thoughts need a signature,
 * because some clients drop those without.
 */
export const OWN_SIGNATURE = "gateway:";

/** The same in bytes of Messages, as serialisers write it: searching them is cheaper than parsing a long history. */
export const OWN_SIGNATURES: readonly string[] = ["", OWN_SIGNATURE].flatMap((signature) => {
  const open = signature === "" ? '""' : `"${signature}`;
  return [`"signature":${open}`, `"signature": ${open}`];
});

export const sealedThoughts = (text: string): string => OWN_SIGNATURE + Buffer.from(text).toString("base64");

/** The text in a signature made by the gateway; null if a vendor made it, or there is none. */
export function thoughtsIn(signature: unknown): string | null {
  if (typeof signature !== "string" || !signature.startsWith(OWN_SIGNATURE)) return null;
  return Buffer.from(signature.slice(OWN_SIGNATURE.length), "base64").toString();
}

/** The thoughts in a block of Messages made by the gateway; null if a vendor signed it. */
export function ownThoughts({ thinking, signature = "" }: Record<string, unknown>): string | null {
  if (signature === "" || signature === OWN_SIGNATURE) return typeof thinking === "string" ? thinking : "";
  return thoughtsIn(signature);
}
