import { fail } from "../../kernel/errors.ts";
import { plainName } from "../../kernel/member-name.ts";

/** The vendors' names for the model, as `plainName` makes them. */
const MODEL_NAMES = new Set(["model", "modelname", "modelid"]);
const SPELLED_AS_KNOWN = new Set(["model", "model_name", "model_id"]);

/**
 * The backend's own fields without those that name a model: the price and the rights are those of the request's
 * `model`. A name that only some servers would read as `model` is refused rather than silently dropped.
 */
export function checkExtra(extra: Record<string, unknown>): Record<string, unknown> {
  const kept = Object.entries(extra).filter(([name]) => {
    if (!MODEL_NAMES.has(plainName(name))) return true;
    if (SPELLED_AS_KNOWN.has(name)) return false;
    return fail("invalid_params", `Invalid params: \`extra.${name}\`: name the model in \`model\` only`, {
      data: { fields: [`extra.${name}`] },
    });
  });
  return Object.fromEntries(kept);
}
