import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { unknownIn } from "../../../kernel/known-fields.ts";
import { plainName } from "../../../kernel/member-name.ts";
import { REQUEST_TOKENS_MAX } from "../../../kernel/usage-parts.ts";

const UNLIMITED = "inf";
/** The vendors' names for the output limit, as `plainName` makes them. */
const LIMITS = new Set(
  "maxoutputtokens maxresponseoutputtokens maxtokens maxcompletiontokens maxnewtokens".split(" "),
);

function refuse(field: string, why: string): never {
  fail("invalid_params", `Invalid params: \`${field}\`: ${why}`, { data: { fields: [field] } });
}

/** "none": not set. "unlimited": set to `inf`. */
export type OutputLimit = number | "none" | "unlimited";

/** The largest output limit in the settings. Refuses bad limits, and another model, which has another price. */
export function readLimit(
  settings: unknown,
  { where, model, known }: { where: string; model: string; known: readonly string[] },
): OutputLimit {
  if (!isObject(settings)) return "none";
  const unknown = unknownIn(Object.keys(settings), known);
  if (unknown) refuse(`${where}.${unknown.name}`, unknown.why);
  let largest = 0;
  let isUnlimited = false;
  for (const [name, value] of Object.entries(settings)) {
    const plain = plainName(name);
    if (plain === "model" && (name !== "model" || value !== model))
      refuse(`${where}.${name}`, "the model of a session is the one that realtime.start names");
    if (!LIMITS.has(plain) || value === null || value === undefined) continue;
    if (value === UNLIMITED) isUnlimited = true;
    else if (!Number.isInteger(value) || Number(value) < 1 || Number(value) > REQUEST_TOKENS_MAX)
      refuse(`${where}.${name}`, `must be a whole number from 1 to ${REQUEST_TOKENS_MAX}, or "${UNLIMITED}"`);
    else largest = Math.max(largest, Number(value));
  }
  if (isUnlimited) return "unlimited";
  return largest === 0 ? "none" : largest;
}
