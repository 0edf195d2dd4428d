interface EmbeddingsAnswer {
  model: string;
  vectors: readonly (readonly number[])[];
  promptTokens: number;
  encoding: "float" | "base64";
}

/** Little-endian float32 bytes as base64, the form that most client libraries ask for. */
export function toBase64(vector: readonly number[]): string {
  const bytes = new Uint8Array(vector.length * 4);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < vector.length; i++) view.setFloat32(i * 4, vector[i]!, true);
  return bytes.toBase64();
}

export const encodingOf = (body: Record<string, unknown>): "float" | "base64" =>
  body.encoding_format === "base64" ? "base64" : "float";

export function embeddingsBody({ model, vectors, promptTokens, encoding }: EmbeddingsAnswer) {
  return {
    object: "list",
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: encoding === "base64" ? toBase64(vector) : vector,
    })),
    model,
    usage: { prompt_tokens: promptTokens, completion_tokens: 0, total_tokens: promptTokens },
  };
}

/** Texts of an `input`, or null when it is anything else, such as token ids. */
export function inputTexts(input: unknown): string[] | null {
  if (typeof input === "string") return [input];
  return Array.isArray(input) && input.every((item) => typeof item === "string") ? input : null;
}
