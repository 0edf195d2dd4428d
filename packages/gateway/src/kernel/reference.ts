import type { AnyMethod } from "./method.ts";
import type { NotificationDefinition } from "./notification.ts";
import { type JsonSchema, jsonSchema } from "./openrpc.ts";
import type { Registry } from "./registry.ts";

/** A schema in a few words: `string`, `integer, optional`, `"a" | "b"`, `array of object`. */
export function typeInWords(schema: JsonSchema): string {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const either = (schema.anyOf ?? schema.oneOf) as JsonSchema[] | undefined;
  if (either) return either.map(typeInWords).join(" or ");
  if (schema.type === "array") return `array of ${typeInWords((schema.items as JsonSchema) ?? {})}`;
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  if (typeof schema.type === "string")
    return schema.format ? `${schema.type} (${schema.format})` : schema.type;
  return "any";
}

// A pipe inside a cell would end it.
const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

function fieldTable(schema: JsonSchema, nothing: string): string {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  const either = schema.anyOf as JsonSchema[] | undefined;
  if (either?.some((option) => option.properties))
    return either.map((option) => fieldTable(option, typeInWords(option))).join("\n\nor\n\n");
  if (schema.type === "array")
    return `An array; each element:\n\n${fieldTable((schema.items as JsonSchema) ?? {}, typeInWords(schema))}`;
  if (properties.length === 0) return nothing;
  const required = new Set((schema.required as string[] | undefined) ?? []);
  const rows = properties.map(([name, field]) => {
    const type = `${typeInWords(field)}${required.has(name) ? "" : ", optional"}`;
    return `| \`${name}\` | ${cell(type)} | ${cell(String(field.description ?? ""))} |`;
  });
  return ["| Field | Type | Notes |", "|---|---|---|", ...rows].join("\n");
}

function section(method: AnyMethod): string {
  const facts = [`Auth: \`${method.auth}\``];
  if (method.role) facts.push(`role: ${method.role}`);
  if (method.notifies)
    facts.push(`notifications: ${method.notifies.map((name) => `\`${name}\``).join(", ")}`);
  return [
    `### ${method.name}`,
    `${method.summary}. ${facts.join("; ")}.`,
    `**Params**\n\n${fieldTable(jsonSchema(method.params, "input"), "None.")}`,
    `**Result**\n\n${fieldTable(jsonSchema(method.result, "output"), "Any value.")}`,
  ].join("\n\n");
}

const notificationSection = ({ name, summary, params }: NotificationDefinition): string =>
  [`### ${name}`, `${summary}.`, fieldTable(jsonSchema(params, "output"), "Nothing.")].join("\n\n");

/** The reference of every method as Markdown, one section a room, and of every notification. */
export function rpcReference(registry: Registry): string {
  const rooms = Map.groupBy(registry.methods.values(), (method) => method.name.split(".")[0]!);
  const parts = [...rooms].map(([room, methods]) => [`## ${room}`, ...methods.map(section)].join("\n\n"));
  const sent = [...registry.notifications.values()].map(notificationSection);
  parts.push(
    [
      "## Notifications",
      "What the service sends on the streams of `GET /api/rpc/events?session=<id>`, each as `{method, params}`.",
      ...sent,
    ].join("\n\n"),
  );
  return `# JSON-RPC methods\n\nMade from the method definitions; \`GET /api/openrpc.json\` has the same for machines.\n\n${parts.join("\n\n")}\n`;
}
