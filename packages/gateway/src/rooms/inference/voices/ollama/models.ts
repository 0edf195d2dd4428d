import type { CapabilityName, ModelInfo } from "../../../../backends/contract.ts";

export type OllamaModel = ReturnType<typeof ollamaModelOf>;

/** Listed for every chat model; whether it really handles tools only its server knows. */
const CHAT_CAPABILITIES = ["completion", "tools"];
const FAMILY = "gateway";
/** Names under which servers report the context length, in order of preference. */
const CONTEXT_NAMES = ["n_ctx", "max_model_len", "n_ctx_train"] as const;

const LATEST = ":latest";
/** Ollama's clients add `:latest` to a bare name; routing finds a tagged model by its bare name. */
export const withoutTag = (name: string): string =>
  name.endsWith(LATEST) ? name.slice(0, -LATEST.length) : name;
export const withTag = (name: string): string => withoutTag(name) + LATEST;

/** The same for every model: only its server knows more. */
export const DETAILS = {
  parent_model: "",
  format: "",
  family: FAMILY,
  families: [FAMILY],
  parameter_size: "",
  quantization_level: "",
};

export function ollamaModelOf({ id, capabilities, meta }: ModelInfo, contextTokensKnown: number | null) {
  const contextTokens =
    CONTEXT_NAMES.map((name) => meta?.[name]).find(Number.isInteger) ?? contextTokensKnown;
  const can = (name: CapabilityName) => capabilities === undefined || capabilities.includes(name);
  const isEmbedder = capabilities !== undefined && can("embeddings");
  return {
    id,
    capabilities: [...(can("chat") ? CHAT_CAPABILITIES : []), ...(isEmbedder ? ["embedding"] : [])],
    modelInfo: {
      "general.architecture": FAMILY,
      ...(contextTokens !== null && { [`${FAMILY}.context_length`]: contextTokens }),
    },
  };
}
