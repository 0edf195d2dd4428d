import { isObject } from "../../../kernel/json.ts";
import { BackendError } from "../../contract.ts";
import { inputTexts } from "../../shared/embedding-encoding.ts";
import { refuse } from "../chat-turns.ts";

export function geminiEmbedRequest(body: Record<string, unknown>, model: string): Record<string, unknown> {
  const texts =
    inputTexts(body.input) ?? refuse("input", "must be a text or an array of texts on this backend's API");
  const size = body.dimensions == null ? {} : { outputDimensionality: body.dimensions };
  return {
    requests: texts.map((text) => ({ model: `models/${model}`, content: { parts: [{ text }] }, ...size })),
  };
}

/** The vectors of its answer, which has no usage. */
export function geminiVectors(body: unknown): number[][] {
  const list = isObject(body) && Array.isArray(body.embeddings) ? body.embeddings : null;
  if (!list) throw new BackendError("transport", "the upstream answered without `embeddings`");
  return list.map((one) => (isObject(one) && Array.isArray(one.values) ? (one.values as number[]) : []));
}
