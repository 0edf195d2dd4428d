import type { JsonSchema } from "../../packages/gateway/src/kernel/documents.ts";

const INDENT = "  ";
/** Shapes shorter than this stay on one line. */
const LINE_WIDTH_MAX = 96;

const isIdentifier = (name: string) => /^[A-Za-z_$][\w$]*$/.test(name);
/** An element or part that is itself a union needs brackets around it. */
const bracketed = (schema: JsonSchema, depth: number) => {
  const isUnion =
    ["anyOf", "oneOf", "allOf", "enum"].some((word) => word in schema) || Array.isArray(schema.type);
  return isUnion ? `(${typeOf(schema, depth)})` : typeOf(schema, depth);
};

function objectType(schema: JsonSchema, depth: number): string {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  const extra = schema.additionalProperties;
  const open = extra === undefined || extra === false ? null : (extra as JsonSchema | true);
  if (properties.length === 0) {
    if (open === null) return "Record<string, never>";
    return `Record<string, ${open === true ? "unknown" : typeOf(open, depth)}>`;
  }
  const required = new Set((schema.required as string[] | undefined) ?? []);
  const fields = properties.map(([name, field]) => ({
    comment: typeof field.description === "string" ? field.description : null,
    text: `${isIdentifier(name) ? name : JSON.stringify(name)}${required.has(name) ? "" : "?"}: ${typeOf(field, depth + 1)}`,
  }));
  // An index signature must admit the named fields too, so it is left as wide as can be.
  if (open !== null) fields.push({ comment: null, text: "[field: string]: unknown" });
  const flat = `{ ${fields.map(({ text }) => text).join("; ")} }`;
  if (
    fields.every(({ comment }) => comment === null) &&
    flat.length <= LINE_WIDTH_MAX &&
    !flat.includes("\n")
  )
    return flat;
  const pad = INDENT.repeat(depth + 1);
  const lines = fields.map(({ comment, text }) =>
    comment === null ? `${pad}${text};` : `${pad}/** ${comment.replaceAll("*/", "* /")} */\n${pad}${text};`,
  );
  return `{\n${lines.join("\n")}\n${INDENT.repeat(depth)}}`;
}

/** A JSON schema as a TypeScript type that a person would have written. */
export function typeOf(schema: JsonSchema, depth = 0): string {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const either = (schema.anyOf ?? schema.oneOf) as JsonSchema[] | undefined;
  if (either) return [...new Set(either.map((option) => typeOf(option, depth)))].join(" | ");
  const all = schema.allOf as JsonSchema[] | undefined;
  if (all) return all.map((part) => bracketed(part, depth)).join(" & ");
  if (Array.isArray(schema.type))
    return schema.type.map((type: string) => typeOf({ ...schema, type }, depth)).join(" | ");
  switch (schema.type) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      return `${bracketed((schema.items as JsonSchema | undefined) ?? {}, depth)}[]`;
    case "object":
      return objectType(schema, depth);
    default:
      return "unknown";
  }
}
