/** Thoughts of one vendor's model in another's API. Only the vendor can sign them, so the gateway marks its own. */
const MARK = "gateway:";

/** Of thoughts that are shown: some clients drop what has no signature. */
export const OWN_SIGNATURE = MARK;

/** In Messages, as serialisers write it: found in the bytes of a request, because parsing a long history is dear. */
export const OWN_SIGNATURES: readonly string[] = ["", MARK].flatMap((signature) => {
  const open = signature === "" ? '""' : `"${signature}`;
  return [`"signature":${open}`, `"signature": ${open}`];
});

export const sealedThoughts = (text: string): string => MARK + Buffer.from(text).toString("base64");

/** What a signature of the gateway's holds; null: it is a vendor's, or there is none. */
export function thoughtsIn(signature: unknown): string | null {
  if (typeof signature !== "string" || !signature.startsWith(MARK)) return null;
  return Buffer.from(signature.slice(MARK.length), "base64").toString();
}

/** The thoughts in a block of Messages that the gateway made; null: a vendor signed it. */
export function ownThoughts({ thinking, signature = "" }: Record<string, unknown>): string | null {
  if (signature === "" || signature === OWN_SIGNATURE) return typeof thinking === "string" ? thinking : "";
  return thoughtsIn(signature);
}
