import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { unknownIn } from "../../../kernel/known-fields.ts";
import { plainName } from "../../../kernel/member-name.ts";
import { REQUEST_TOKENS_MAX } from "../../../kernel/usage-parts.ts";

/** The vendors' names for the output limit, as `plainName` makes them. */
const LIMITS = new Set(
  "maxoutputtokens maxresponseoutputtokens maxtokens maxcompletiontokens maxnewtokens".split(" "),
);

function refuse(field: string, why: string): never {
  fail("invalid_params", `Invalid params: \`${field}\`: ${why}`, { data: { fields: [field] } });
}

/** The largest output limit in the settings. Undefined: not set. `Infinity`: set to `inf`. */
export function limitIn(settings: Record<string, unknown>): number | undefined {
  const limits = Object.entries(settings).flatMap(([name, value]) => {
    const isSet = LIMITS.has(plainName(name)) && value !== null && value !== undefined;
    return isSet ? (isLimit(value) ? value : Number.POSITIVE_INFINITY) : [];
  });
  return limits.length > 0 ? Math.max(...limits) : undefined;
}

const isLimit = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 1 && Number(value) <= REQUEST_TOKENS_MAX;

/** Refuses bad limits, another model, which has another price, and another kind of session. */
export function checkSettings(
  settings: unknown,
  { where, model, known }: { where: string; model: string; known: readonly string[] },
): void {
  if (!isObject(settings)) return;
  const unknown = unknownIn(Object.keys(settings), known);
  if (unknown) refuse(`${where}.${unknown.name}`, unknown.why);
  for (const [name, value] of Object.entries(settings)) {
    const plain = plainName(name);
    if (plain === "model" && (name !== "model" || value !== model))
      refuse(`${where}.${name}`, "the model of a session is the one that realtime.start names");
    if (plain === "type" && value !== "realtime")
      refuse(`${where}.${name}`, 'must be "realtime": there are no sessions for transcription alone');
    if (LIMITS.has(plain) && value !== null && value !== undefined && value !== "inf" && !isLimit(value))
      refuse(`${where}.${name}`, `must be a whole number from 1 to ${REQUEST_TOKENS_MAX}, or "inf"`);
  }
}
