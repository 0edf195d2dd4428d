import { type Answer, BackendError } from "../contract.ts";
import { jsonAnswer } from "./upstream-http.ts";

interface Vectors {
  texts: readonly string[];
  vectors: readonly (readonly number[])[];
  promptTokens: number;
}

export function embeddingsAnswer(
  { texts, vectors, promptTokens }: Vectors,
  { model, signal }: { model: string; signal: AbortSignal },
): Answer {
  if (vectors.length !== texts.length)
    throw new BackendError(
      "transport",
      `the upstream answered ${vectors.length} embeddings for ${texts.length} inputs`,
    );
  const data = vectors.map((embedding, index) => ({ object: "embedding", index, embedding }));
  const usage = { prompt_tokens: promptTokens, completion_tokens: 0, total_tokens: promptTokens };
  return jsonAnswer({ object: "list", data, model, usage }, signal);
}

/** The texts of a request's `input`; refuses anything else, such as token ids. */
export function inputTexts({ input }: Record<string, unknown>): string[] {
  if (typeof input === "string") return [input];
  if (Array.isArray(input) && input.every((item) => typeof item === "string")) return input;
  throw new BackendError("request", "`input` must be a text or an array of texts on this backend's API");
}
