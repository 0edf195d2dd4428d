/**
 * What a model may be called. The id reaches file names, argument lists and URLs, so its alphabet is closed:
 * no traversal, no option-like names, no white space.
 */
import { createHash } from "node:crypto";
import { z } from "zod";

const MODEL_ID_CHARS_MAX = 128;
const SEGMENT = "[A-Za-z0-9](?:[A-Za-z0-9._:@+-]*[A-Za-z0-9])?";
const MODEL_ID = new RegExp(`^${SEGMENT}(?:/${SEGMENT}){0,3}$`);

export const ModelId = z
  .string()
  .max(MODEL_ID_CHARS_MAX)
  .refine((id) => MODEL_ID.test(id) && !id.includes(".."), {
    error: `model_id must be 1-4 parts joined by "/", each of letters, digits and inner . _ : @ + -, at most ${MODEL_ID_CHARS_MAX} characters`,
  });

/**
 * A folder name for any string: readable, and distinct even where two ids differ only in what is replaced.
 * `identity` is what tells it apart where the name alone does not; it does not show.
 */
export function safeFolderName(name: string, identity = name): string {
  const readable = name.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80);
  const digest = createHash("sha256").update(identity).digest("hex").slice(0, 10);
  return `${readable}-${digest}`;
}
