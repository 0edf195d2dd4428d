/** What a model will take of the GPUs: its weights, the cache of its contexts, and what every engine needs besides. */
import type { Estimate, GpuReport } from "@model-gateway/protocol/agent.ts";
import { z } from "zod";
import type { ModelEntry } from "../config.ts";
import { readGguf } from "./gguf.ts";

const MB = 1024 * 1024;
const CACHE_VALUE_BYTES = 2;
/** The driver's context and the engine's buffers, on each GPU. */
const OVERHEAD_MB_PER_GPU = 600;
/** Activations grow with the model. */
const OVERHEAD_SHARE_OF_WEIGHTS = 0.05;
/** An engine without a limit of its own is given as many contexts as this. */
const SLOTS_DEFAULT = 1;

/** What of a model's architecture the cache depends on. */
export interface ModelShape {
  cacheBytesPerToken: number;
  contextTokensMax: number | null;
  /** Of layers that look back only so far: what they keep besides, up to that many tokens. */
  window?: { tokens: number; cacheBytesPerToken: number };
}

const Figure = z.number().positive().nullable().default(null).catch(null);
const HubConfig = z.object({
  num_hidden_layers: Figure,
  num_attention_heads: Figure,
  num_key_value_heads: Figure,
  hidden_size: Figure,
  head_dim: Figure,
  kv_lora_rank: Figure,
  qk_rope_head_dim: Figure,
  max_position_embeddings: Figure,
  sliding_window: Figure,
  layer_types: z.array(z.string()).nullable().default(null).catch(null),
});
/** Models that also see or hear have the figures of their language part one level down. */
const WithTextConfig = z.object({ text_config: z.unknown() });

/** From the hub's config.json; null where it does not say. */
export function shapeOfConfig(json: unknown): ModelShape | null {
  const nested = WithTextConfig.safeParse(json).data?.text_config;
  const config = HubConfig.safeParse(nested ?? json).data;
  const layers = config?.num_hidden_layers;
  if (!layers) return null;
  const { max_position_embeddings: contextTokensMax, num_attention_heads: heads, hidden_size } = config;
  // Multi-head latent attention keeps one compressed vector per token.
  if (config.kv_lora_rank) {
    const values = config.kv_lora_rank + (config.qk_rope_head_dim ?? 0);
    return { cacheBytesPerToken: layers * values * CACHE_VALUE_BYTES, contextTokensMax };
  }
  const kvHeads = config.num_key_value_heads ?? heads;
  const headDim = config.head_dim ?? (hidden_size && heads ? hidden_size / heads : null);
  if (!kvHeads || !headDim) return null;
  const layerBytes = 2 * kvHeads * headDim * CACHE_VALUE_BYTES;
  const { sliding_window: tokens, layer_types: types } = config;
  if (types?.length !== layers) return { cacheBytesPerToken: layers * layerBytes, contextTokensMax };
  // Linear attention keeps a state that does not grow with the context.
  const growing = types.filter((type) => type !== "linear_attention").length;
  const sliding = tokens ? types.filter((type) => type === "sliding_attention").length : 0;
  return {
    cacheBytesPerToken: (growing - sliding) * layerBytes,
    contextTokensMax,
    ...(tokens && sliding > 0 && { window: { tokens, cacheBytesPerToken: sliding * layerBytes } }),
  };
}

/** From the beginning of a GGUF file. */
export function shapeOfGguf(head: Uint8Array): ModelShape | null {
  const found = readGguf(head);
  const architecture = found.get("general.architecture");
  const figure = (name: string) => {
    const value = found.get(`${architecture}.${name}`);
    return typeof value === "number" ? value : null;
  };
  const layers = figure("block_count");
  const heads = figure("attention.head_count");
  const hidden = figure("embedding_length");
  const perLayer = found.get(`${architecture}.attention.head_count_kv`) ?? heads;
  if (layers === null || perLayer === null) return null;
  const headDim = hidden !== null && heads !== null ? hidden / heads : null;
  const keyDim = figure("attention.key_length") ?? headDim;
  const valueDim = figure("attention.value_length") ?? headDim;
  if (keyDim === null || valueDim === null) return null;
  const kvHeads = Array.isArray(perLayer)
    ? perLayer.reduce((sum, each) => sum + each, 0)
    : layers * Number(perLayer);
  return {
    cacheBytesPerToken: kvHeads * (keyDim + valueDim) * CACHE_VALUE_BYTES,
    contextTokensMax: figure("context_length"),
  };
}

const cacheBytes = ({ cacheBytesPerToken, window }: ModelShape, contextTokens: number): number =>
  cacheBytesPerToken * contextTokens +
  (window ? window.cacheBytesPerToken * Math.min(contextTokens, window.tokens) : 0);

/** Without a shape the cache is unknown and counts as nothing. */
export function estimateOf(
  { weightsBytes, shape }: { weightsBytes: number; shape: ModelShape | null },
  { context_tokens, slots = SLOTS_DEFAULT, gpu_count = 1, gpus }: Partial<ModelEntry>,
): Estimate {
  const contextTokens = context_tokens ?? shape?.contextTokensMax ?? null;
  const weights_mb = Math.ceil(weightsBytes / MB);
  const cache_mb = shape && contextTokens ? Math.ceil((cacheBytes(shape, contextTokens) * slots) / MB) : null;
  const overhead_mb =
    OVERHEAD_MB_PER_GPU * (gpus?.length ?? gpu_count) + Math.ceil(weights_mb * OVERHEAD_SHARE_OF_WEIGHTS);
  return {
    weights_mb,
    cache_mb,
    overhead_mb,
    total_mb: weights_mb + (cache_mb ?? 0) + overhead_mb,
    context_tokens: contextTokens,
    slots,
  };
}

export const freeMbOf = ({ memory_free_mb, memory_total_mb, memory_used_mb }: GpuReport): number | null =>
  memory_free_mb ??
  (memory_total_mb === null || memory_used_mb === null ? null : memory_total_mb - memory_used_mb);

/** What a model can have of these GPUs: it is split evenly, so the fullest one limits. Null: nobody knows. */
export function roomMb(gpus: readonly GpuReport[], { gpus: named, gpu_count }: Partial<ModelEntry>) {
  const free = gpus.flatMap((gpu) => {
    const freeMb = named && !named.includes(gpu.index) ? null : freeMbOf(gpu);
    return freeMb === null ? [] : freeMb;
  });
  const count = named?.length ?? gpu_count;
  if (free.length === 0) return null;
  if (count === undefined) return free.reduce((sum, each) => sum + each, 0);
  return free.length < count ? 0 : count * free.sort((a, b) => b - a)[count - 1]!;
}
