import { z } from "zod";

/** Token counts as chat and embeddings answers carry them; for the API reference. */
export const Usage = z.object({ prompt_tokens: z.int(), completion_tokens: z.int(), total_tokens: z.int() });

export const ToolCall = z.looseObject({
  id: z.string().optional(),
  index: z.int().optional(),
  type: z.string().optional(),
  function: z.looseObject({ name: z.string().optional(), arguments: z.string().optional() }).optional(),
});
