import { isObject } from "../../kernel/json.ts";
import type { ModelInfo } from "../contract.ts";
import { boundedModels } from "../shared/probe.ts";

/** Ids of a model listing, in any of the usual wrappers; null when it is not a listing. */
export function modelsOfListing(body: unknown): ModelInfo[] | null {
  const list = Array.isArray(body) ? body : isObject(body) ? (body.data ?? body.models) : null;
  if (!Array.isArray(list)) return null;
  return boundedModels(list.flatMap((item) => modelOf(isObject(item) ? item : { id: item })));
}

function modelOf(item: Record<string, unknown>): ModelInfo[] {
  const listed = item.id ?? item.name;
  // Another gateway lists models that it would serve if it had a backend for them.
  if (typeof listed !== "string" || item.available === false) return [];
  // Google lists its models by their resource names, and takes them without.
  const id = listed.replace(/^models\//, "");
  const meta = metaOf(item);
  return [meta ? { id, meta } : { id }];
}

const META_MEMBERS_MAX = 32;
const META_CHARS_MAX = 256;

/** What llama.cpp says in `meta` and vLLM beside the id: plain figures and short texts, a bounded number of them. */
function metaOf({ meta, max_model_len }: Record<string, unknown>): Record<string, unknown> | null {
  const told = { ...(isObject(meta) && meta), ...(max_model_len !== undefined && { max_model_len }) };
  const plain = Object.entries(told).filter(
    ([name, value]) =>
      name.length <= META_CHARS_MAX &&
      (typeof value === "string" ? value.length <= META_CHARS_MAX : !(value instanceof Object)),
  );
  return plain.length > 0 ? Object.fromEntries(plain.slice(0, META_MEMBERS_MAX)) : null;
}
