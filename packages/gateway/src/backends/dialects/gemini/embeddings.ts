import { isObject } from "../../../kernel/json.ts";
import { BackendError } from "../../contract.ts";

export const geminiEmbedRequest = (
  texts: readonly string[],
  { model, dimensions }: { model: string; dimensions?: unknown },
) => ({
  requests: texts.map((text) => ({
    model: `models/${model}`,
    content: { parts: [{ text }] },
    ...(dimensions != null && { outputDimensionality: dimensions }),
  })),
});

/** The vectors of its answer, which has no usage. */
export function geminiVectors(body: unknown): number[][] {
  const list = isObject(body) && Array.isArray(body.embeddings) ? body.embeddings : null;
  if (!list) throw new BackendError("transport", "the upstream answered without `embeddings`");
  return list.map((one) => (isObject(one) && Array.isArray(one.values) ? (one.values as number[]) : []));
}
