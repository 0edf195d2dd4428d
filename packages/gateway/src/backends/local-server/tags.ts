import { isObject } from "../../kernel/json.ts";
import { BackendError, type CapabilityName, type ModelInfo } from "../contract.ts";
import { boundedModels } from "../shared/models.ts";

/** The server's names for a model's abilities, and ours. */
const CAPABILITIES: ReadonlyMap<unknown, CapabilityName> = new Map([
  ["completion", "chat"],
  ["embedding", "embeddings"],
]);

/** The models of a tag listing. Servers that do not report abilities leave them open. */
export function modelsOfTags(answer: unknown): ModelInfo[] {
  const models = isObject(answer) ? answer.models : undefined;
  // A server without any model says null.
  if (models === null) return [];
  if (!Array.isArray(models)) throw new BackendError("transport", "the tag listing has no models");
  const listed = models.filter(isObject).flatMap(({ name, model, capabilities }) => {
    const id = name ?? model;
    if (typeof id !== "string") return [];
    if (!Array.isArray(capabilities)) return [{ id }];
    return [{ id, capabilities: capabilities.flatMap((ability) => CAPABILITIES.get(ability) ?? []) }];
  });
  return boundedModels(listed);
}
