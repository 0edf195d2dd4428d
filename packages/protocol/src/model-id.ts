import { z } from "zod";

const MODEL_ID_CHARS_MAX = 128;
const SEGMENT = "[A-Za-z0-9](?:[A-Za-z0-9._:@+-]*[A-Za-z0-9])?";
const MODEL_ID = new RegExp(`^${SEGMENT}(?:/${SEGMENT}){0,3}$`);

/**
 * The id of a model on a node. It ends up in file names, argument lists and URLs, so its alphabet is closed: no path
 * traversal, nothing that looks like an option, no white space.
 */
export const ModelId = z
  .string()
  .max(MODEL_ID_CHARS_MAX)
  .refine((id) => MODEL_ID.test(id) && !id.includes(".."), {
    error: `use owner/name, such as Qwen/Qwen3-8B: up to 4 parts of letters, digits and inner . _ : @ + -, at most ${MODEL_ID_CHARS_MAX} characters`,
  });
