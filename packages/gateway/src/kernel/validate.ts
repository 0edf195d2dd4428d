import { z } from "zod";
import { jsonSchema } from "./documents.ts";
import { type FieldErrors, fail } from "./errors.ts";
import { isObject } from "./json.ts";

const ISSUES_SHOWN_MAX = 3;

const UNITS: Readonly<Record<string, readonly [one: string, many: string]>> = {
  string: ["character", "characters"],
  array: ["entry", "entries"],
};

function inWords(issue: z.core.$ZodIssue): string {
  const [, type, given] = /^Invalid input: expected (\w+), received (\w+)$/.exec(issue.message) ?? [];
  if (given === "undefined") return "is required";
  if (type) return `must be ${/^[aeio]/.test(type) ? "an" : "a"} ${type.replace(/^int$/, "integer")}`;
  const isSmall = issue.code === "too_small";
  if ((!isSmall && issue.code !== "too_big") || !/^Too (small|big): /.test(issue.message))
    return issue.message;
  const bound = Number(isSmall ? issue.minimum : issue.maximum);
  const unit = UNITS[issue.origin];
  if (unit && isSmall && bound === 1) return "must not be empty";
  const side = issue.inclusive ? (isSmall ? "at least" : "at most") : isSmall ? "more than" : "less than";
  if (unit) return `must have ${side} ${bound} ${bound === 1 ? unit[0] : unit[1]}`;
  return `must be ${side} ${bound}`;
}

/** Like `z.record`, but counts the entries first: checking very many would block the event loop. */
export const recordOf = <Key extends z.ZodString, Value extends z.ZodType>(
  entriesMax: number,
  key: Key,
  value: Value,
) =>
  z
    .looseObject({})
    .refine((given) => Object.keys(given).length <= entriesMax, `must have at most ${entriesMax} entries`)
    .meta({ additionalProperties: jsonSchema(value, "input") })
    .pipe(z.record(key, value));

/** The first problems, each with its field: "`messages.0.role`: Invalid option …". */
export function describeIssues(error: z.ZodError): string {
  const lines = error.issues.slice(0, ISSUES_SHOWN_MAX).map((issue) => {
    const field = issue.path.map(String).join(".");
    return (field && `\`${field}\`: `) + inWords(issue);
  });
  const more = error.issues.length - lines.length;
  return lines.join("; ") + (more > 0 ? `; and ${more} more` : "");
}

/** Why a text cannot be stored: Postgres accepts no NUL, and UTF-8 has no half surrogate pairs. */
function unstorable(value: unknown): string | undefined {
  if (Array.isArray(value)) return value.map(unstorable).find((reason) => reason !== undefined);
  if (typeof value !== "string") return undefined;
  if (value.includes("\u0000")) return "must not contain a NUL character";
  return value.isWellFormed() ? undefined : "must not contain half of a surrogate pair";
}

/** Checks top-level texts and lists only: deeper ones, such as message contents, are passed on to upstreams. */
function refuseUnstorable(value: unknown, invalid: FieldErrors): void {
  if (!isObject(value)) return;
  const kind = typeof invalid === "string" ? invalid : "invalid_params";
  for (const field of Object.keys(value)) {
    const reason = unstorable(value[field]);
    if (reason) fail(kind, `Invalid params: \`${field}\`: ${reason}`, { data: { fields: [field] } });
  }
}

/** Drops nulls of optional fields that do not accept null: many clients send null for what they leave out. */
function withoutNulls(schema: z.ZodType, value: unknown): unknown {
  if (!isObject(value) || !Object.values(value).includes(null) || !(schema instanceof z.ZodObject))
    return value;
  const shape = schema.shape as Record<string, z.ZodType>;
  const isLeftOut = ([field, content]: [string, unknown]) =>
    content === null &&
    Object.hasOwn(shape, field) &&
    shape[field]!.safeParse(undefined).success &&
    !shape[field]!.safeParse(null).success;
  return Object.fromEntries(Object.entries(value).filter((entry) => !isLeftOut(entry)));
}

export interface Problem {
  path: (string | number)[];
  message: string;
}

function unknownIn(given: unknown, known: unknown, path: Problem["path"] = []): Problem[] {
  if (Array.isArray(given) && Array.isArray(known))
    return given.flatMap((each, at) => unknownIn(each, known[at], [...path, at]));
  if (!isObject(given) || !isObject(known)) return [];
  return Object.keys(given).flatMap((name) => {
    if (Object.hasOwn(known, name)) return unknownIn(given[name], known[name], [...path, name]);
    return given[name] === null ? [] : { path: [...path, name], message: "is not a field" };
  });
}

/** All problems of a value. Unlike in calls, unknown fields are problems, too. */
export function inspect<S extends z.ZodType>(
  schema: S,
  value: unknown,
): { value: z.output<S>; problems: null } | { value: null; problems: Problem[] } {
  const { success, data, error } = schema.safeParse(withoutNulls(schema, value));
  const problems = success
    ? unknownIn(value, data)
    : error.issues.map((issue) => ({ path: issue.path as Problem["path"], message: inWords(issue) }));
  return success && problems.length === 0 ? { value: data, problems: null } : { value: null, problems };
}

/** The library supports the setting, but its types lack it. */
const FIRST_FAULT = { abortEarly: true } as z.core.ParseContext<z.core.$ZodIssue>;
const NAMED_AMONG_MAX = 2_000;

/** Whether a value is so large that finding all its problems, not only the first, would block the event loop. */
function hasMany(value: unknown, left = { count: NAMED_AMONG_MAX }): boolean {
  if (typeof value !== "object" || value === null) return false;
  const entries: unknown[] = Array.isArray(value) ? value : Object.values(value);
  left.count -= entries.length;
  return left.count < 0 || entries.some((each) => hasMany(each, left));
}

function refuseInvalid(error: z.ZodError, invalid: FieldErrors): never {
  const data = { fields: error.issues.slice(0, 20).map(({ path }) => path.map(String).join(".")) };
  const [first] = error.issues;
  const own = typeof invalid === "string" ? undefined : invalid[String(first?.path[0] ?? "")];
  if (own && first) fail(own, first.message, { data });
  const kind = typeof invalid === "string" ? invalid : "invalid_params";
  fail(kind, `Invalid params: ${describeIssues(error)}`, { data });
}

/** Returns the parsed value, or throws the given error, which names the invalid fields. */
export function validate<S extends z.ZodType>(
  schema: S,
  value: unknown,
  invalid: FieldErrors = "invalid_params",
): z.output<S> {
  const given = withoutNulls(schema, value);
  const parsed = schema.safeParse(given, FIRST_FAULT);
  if (!parsed.success) refuseInvalid(hasMany(given) ? parsed.error : schema.safeParse(given).error!, invalid);
  refuseUnstorable(parsed.data, invalid);
  return parsed.data;
}
