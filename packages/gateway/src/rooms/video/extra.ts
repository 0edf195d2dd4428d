import { fail } from "../../kernel/errors.ts";

/** The vendors' names for the model: the price and the rights are those of the request's `model`. */
const MODEL_NAMES = ["model", "model_name", "model_id"];

export const withoutModel = (extra: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(extra).filter(([name]) => !MODEL_NAMES.includes(name)));

/** Refuses names that neither the vendor's dialect nor the operator knows. */
export function requireKnown(extra: Record<string, unknown>, known: readonly string[]): void {
  const name = Object.keys(extra).find((each) => !known.includes(each));
  if (name === undefined) return;
  const field = `extra.${name}`;
  fail("invalid_params", `Invalid params: \`${field}\`: is not known here; known are ${known.join(", ")}`, {
    data: { fields: [field] },
  });
}
