import { fail } from "../../kernel/errors.ts";
import { unknownIn } from "../../kernel/known-fields.ts";

/** The vendors' names for the model: the price and the rights are those of the request's `model`. */
const MODEL_NAMES = ["model", "model_name", "model_id"];

export const withoutModel = (extra: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(extra).filter(([name]) => !MODEL_NAMES.includes(name)));

/** Refuses names that neither the vendor's dialect nor the operator knows. */
export function requireKnown(extra: Record<string, unknown>, known: readonly string[]): void {
  const unknown = unknownIn(Object.keys(extra), known);
  if (!unknown) return;
  const field = `extra.${unknown.name}`;
  fail("invalid_params", `Invalid params: \`${field}\`: ${unknown.why}`, { data: { fields: [field] } });
}
