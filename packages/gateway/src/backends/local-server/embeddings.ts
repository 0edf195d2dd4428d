import { isObject } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";
import { inputTexts } from "../shared/embedding-encoding.ts";

const PASSED_FIELDS = ["truncate", "dimensions", "keep_alive", "options"] as const;

interface OllamaEmbedRequest {
  model: string;
  input: string[];
  [field: string]: unknown;
}

/** A chat-compatible embeddings body as a body of `POST /api/embed`. */
export function toOllamaEmbed(body: Record<string, unknown>, model: string): OllamaEmbedRequest {
  const input = inputTexts(body.input);
  if (!input) {
    throw new BackendError("request", "`input` must be a text or an array of texts for this backend");
  }
  const request: OllamaEmbedRequest = { model, input };
  for (const name of PASSED_FIELDS) if (body[name] !== undefined) request[name] = body[name];
  return request;
}

const isVector = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((item) => typeof item === "number");

/** Vectors and token count of an answer: `{embeddings}` now, `{embedding}` from the older path. */
export function fromOllamaEmbed(answer: unknown): { vectors: number[][]; promptTokens: number } {
  const body = isObject(answer) ? answer : {};
  const vectors = body.embeddings ?? [body.embedding];
  if (!Array.isArray(vectors) || !vectors.every(isVector))
    throw new BackendError("transport", "the upstream answered without embeddings");
  return { vectors, promptTokens: Number(body.prompt_eval_count ?? 0) };
}
