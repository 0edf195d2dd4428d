import { isObject } from "../../kernel/json.ts";
import type { ModelInfo } from "../contract.ts";

const MODELS_MAX = 10_000;
const ID_LENGTH_MAX = 256;

/** Ids of a model listing, in whichever of the usual wrappers it comes; null when it is none. */
export function modelsOfListing(body: unknown): ModelInfo[] | null {
  const list = Array.isArray(body) ? body : isObject(body) ? (body.data ?? body.models) : null;
  if (!Array.isArray(list)) return null;
  const ids = list.map((item) => (isObject(item) ? (item.id ?? item.name) : item));
  return ids
    .filter((id): id is string => typeof id === "string" && id !== "" && id.length <= ID_LENGTH_MAX)
    .slice(0, MODELS_MAX)
    .map((id) => ({ id }));
}
