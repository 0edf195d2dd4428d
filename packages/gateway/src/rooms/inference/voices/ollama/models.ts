import type { CapabilityName, ModelInfo } from "../../../../backends/contract.ts";

export interface OllamaModel {
  id: string;
  /** What it can be asked to do, in this API's words. */
  capabilities: string[];
  details: ReturnType<typeof detailsOf>;
  modelInfo: Record<string, unknown>;
}

/** What a model that can chat is asked for besides; whether it is any good at it, its server knows. */
const CHAT_CAPABILITIES = ["completion", "tools"];
const FAMILY = "gateway";
/** How servers call the tokens that a model reads, the one that counts first. */
const CONTEXT_NAMES = ["n_ctx", "max_model_len", "n_ctx_train"] as const;

const LATEST = ":latest";
/** These clients write a model's tag even where it has none; routing finds a tagged model by its bare name. */
export const withoutTag = (name: string): string =>
  name.endsWith(LATEST) ? name.slice(0, -LATEST.length) : name;
export const withTag = (name: string): string => withoutTag(name) + LATEST;

const detailsOf = () => ({
  parent_model: "",
  format: "",
  family: FAMILY,
  families: [FAMILY],
  parameter_size: "",
  quantization_level: "",
});

export function ollamaModelOf(
  { id, capabilities, meta }: ModelInfo,
  contextTokensKnown: number | null,
): OllamaModel {
  const contextTokens =
    CONTEXT_NAMES.map((name) => meta?.[name]).find(Number.isInteger) ?? contextTokensKnown;
  const can = (name: CapabilityName) => capabilities === undefined || capabilities.includes(name);
  const isEmbedder = capabilities !== undefined && can("embeddings");
  return {
    id,
    capabilities: [...(can("chat") ? CHAT_CAPABILITIES : []), ...(isEmbedder ? ["embedding"] : [])],
    details: detailsOf(),
    modelInfo: {
      "general.architecture": FAMILY,
      ...(contextTokens !== null && { [`${FAMILY}.context_length`]: contextTokens }),
    },
  };
}
