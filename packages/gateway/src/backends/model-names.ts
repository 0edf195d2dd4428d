import type { ModelInfo } from "./contract.ts";

const MODELS_MAX = 10_000;
const MODEL_ID_CHARS_MAX = 256;

/** A listing cut to what is kept of it: whoever sends more, or names longer than this, lists nonsense. */
export const boundedModels = (models: readonly ModelInfo[]): ModelInfo[] =>
  models.filter(({ id }) => id.length > 0 && id.length <= MODEL_ID_CHARS_MAX).slice(0, MODELS_MAX);

/** Whether a name carries a tag: a colon after the last slash, so that a registry's port is not one. */
const hasTag = (name: string): boolean => name.indexOf(":", name.lastIndexOf("/") + 1) !== -1;

/** A listing `name:latest` answers to the bare `name`; a name with a tag answers only to itself. */
export function sameModel(listed: string, requested: string): boolean {
  return listed === requested || (!hasTag(requested) && listed === `${requested}:latest`);
}
