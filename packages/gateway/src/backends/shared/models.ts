import type { ModelInfo } from "../contract.ts";

const MODELS_MAX = 10_000;
const MODEL_ID_CHARS_MAX = 256;

/** The part of a listing that is kept. More models, or longer ids, are a server's mistake. */
export const boundedModels = (models: readonly ModelInfo[]): ModelInfo[] =>
  models.filter(({ id }) => id.length > 0 && id.length <= MODEL_ID_CHARS_MAX).slice(0, MODELS_MAX);
