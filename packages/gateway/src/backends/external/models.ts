import { isObject } from "../../kernel/json.ts";
import type { ModelInfo } from "../contract.ts";
import { boundedModels } from "../shared/models.ts";

/** Ids of a model listing, in any of the usual wrappers; null when it is not a listing. */
export function modelsOfListing(body: unknown): ModelInfo[] | null {
  const list = Array.isArray(body) ? body : isObject(body) ? (body.data ?? body.models) : null;
  if (!Array.isArray(list)) return null;
  const ids = list.map((item) => (isObject(item) ? (item.id ?? item.name) : item));
  return boundedModels(ids.flatMap((id) => (typeof id === "string" ? [{ id }] : [])));
}
