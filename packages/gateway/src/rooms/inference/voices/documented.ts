import { z } from "zod";

/** Token counts as chat and embeddings answers carry them; for the documents. */
export const Usage = z.object({
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
});
