import { z } from "zod";
import { ERRORS } from "./errors.ts";
import type { AnyMethod, NotificationDefinition } from "./method.ts";
import type { Registry } from "./registry.ts";
import { type AnyRoute, Raw } from "./route.ts";

// The newest version that the published meta-schema accepts.
const OPENRPC_VERSION = "1.3.2";

export type JsonSchema = Record<string, unknown>;

export function jsonSchema(schema: z.ZodType, io: "input" | "output"): JsonSchema {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" }) as JsonSchema;
  return rest;
}

function propertiesOf({ properties = {}, required = [] }: JsonSchema) {
  const names = new Set(required as string[]);
  return Object.entries(properties as Record<string, JsonSchema>).map(([name, schema]) => ({
    name,
    required: names.has(name),
    schema,
  }));
}

const errorsFor = ({ auth }: AnyMethod) => [
  { code: ERRORS.invalid_params.rpc, message: "Invalid params" },
  ...(auth === "public" ? [] : [{ code: ERRORS.auth_required.rpc, message: "Authentication required" }]),
  ...(auth === "admin" ? [{ code: ERRORS.admin_required.rpc, message: "Admin access required" }] : []),
  { code: ERRORS.app_error.rpc, message: "Application error" },
];

function describeMethod(method: AnyMethod) {
  const params = propertiesOf(jsonSchema(method.params, "input"));
  return {
    name: method.name,
    summary: method.summary,
    tags: [{ name: method.name.split(".")[0] }],
    paramStructure: "by-name",
    // OpenRPC wants required params before optional ones.
    params: params.sort((a, b) => Number(b.required) - Number(a.required)),
    result: { name: "result", schema: jsonSchema(method.result, "output") },
    errors: errorsFor(method),
    "x-auth": method.auth,
    ...(method.role && { "x-role": method.role }),
    ...(method.notifies && { "x-notifications": method.notifies }),
  };
}

export function openRpcDocument(
  registry: Registry,
  { version, serverUrl }: { version: string; serverUrl: string },
): JsonSchema {
  return {
    openrpc: OPENRPC_VERSION,
    info: { title: "Model gateway management plane", version },
    servers: [{ name: "this service", url: `${serverUrl}/api/rpc` }],
    methods: [...registry.methods.values()].map(describeMethod),
    // OpenRPC has no notifications; these come over /api/rpc/events.
    "x-notifications": [...registry.notifications.values()].map(({ name, summary, params }) => ({
      name,
      summary,
      params: jsonSchema(params, "output"),
    })),
  };
}

const ERROR_SCHEMA = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["message", "type", "code"],
      properties: { message: { type: "string" }, type: { type: "string" }, code: { type: "string" } },
    },
  },
};

const SECURITY = {
  public: [],
  api_key: [{ apiKey: [] }],
  jwt: [{ accessToken: [] }],
  admin: [{ accessToken: [] }],
  admin_token: [{ adminToken: [] }],
  jwt_or_admin_token: [{ accessToken: [] }, { adminToken: [] }],
} as const;

export const schemaOf = (shape: z.ZodType | Raw): z.ZodType => (shape instanceof Raw ? shape.schema : shape);

const JSON_MEDIA = "application/json";
const mediaTypeOf = (shape: z.ZodType | Raw): string =>
  (shape instanceof Raw ? shape.more.type : undefined) ?? JSON_MEDIA;

export function answersOf({ response }: AnyRoute): Record<string, z.ZodType> {
  const events = response instanceof Raw ? response.more.events : null;
  return { [mediaTypeOf(response)]: schemaOf(response), ...(events && { "text/event-stream": events }) };
}

function parameters(route: AnyRoute) {
  const inPath = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const query = route.query ? propertiesOf(jsonSchema(route.query, "input")) : [];
  return [...inPath, ...query.map(({ name, ...rest }) => ({ name, in: "query", ...rest }))];
}

function operation(route: AnyRoute) {
  const answers = Object.entries(answersOf(route)).map(([type, schema]) => [
    type,
    { schema: jsonSchema(schema, "output") },
  ]);
  return {
    summary: route.summary,
    operationId: `${route.method.toLowerCase()}${route.path.replace(/[^a-zA-Z0-9]+/g, "_")}`,
    security: SECURITY[route.auth],
    parameters: parameters(route),
    ...(route.body && {
      requestBody: {
        required: true,
        content: { [mediaTypeOf(route.body)]: { schema: jsonSchema(schemaOf(route.body), "input") } },
      },
    }),
    responses: {
      "200": { description: "Success", content: Object.fromEntries(answers) },
      default: { description: "Error", content: { "application/json": { schema: ERROR_SCHEMA } } },
    },
  };
}

export function openApiDocument(registry: Registry, version: string): JsonSchema {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of registry.routes) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: "3.1.0",
    info: { title: "Model gateway HTTP surfaces", version },
    servers: [{ url: "/" }],
    components: {
      securitySchemes: {
        accessToken: { type: "http", scheme: "bearer", description: "The access token of auth.login" },
        apiKey: { type: "http", scheme: "bearer", description: "An API key: service-<uuid>" },
        adminToken: { type: "http", scheme: "bearer", description: "The value of SERVICE_ADMIN_TOKEN" },
      },
    },
    paths,
  };
}

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

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

function fieldTable(schema: JsonSchema, nothing: string): string {
  const either = schema.anyOf as JsonSchema[] | undefined;
  if (either?.some((option) => option.properties))
    return either.map((option) => fieldTable(option, typeInWords(option))).join("\n\nor\n\n");
  if (schema.type === "array")
    return `An array; each element:\n\n${fieldTable((schema.items as JsonSchema) ?? {}, typeInWords(schema))}`;
  const properties = propertiesOf(schema);
  if (properties.length === 0) return nothing;
  const rows = properties.map(({ name, required, schema: field }) => {
    const type = `${typeInWords(field)}${required ? "" : ", optional"}`;
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
