import { type JsonSchema, jsonSchema } from "./openrpc.ts";
import type { Registry } from "./registry.ts";
import type { RouteDefinition } from "./route.ts";

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

const SECURITY = { public: [], api_key: [{ apiKey: [] }], admin_token: [{ adminToken: [] }] } as const;

function parameters(route: RouteDefinition) {
  const inPath = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const query = route.query ? jsonSchema(route.query, "input") : {};
  const required = new Set((query.required as string[] | undefined) ?? []);
  const inQuery = Object.entries((query.properties ?? {}) as Record<string, JsonSchema>).map(
    ([name, schema]) => ({
      name,
      in: "query",
      required: required.has(name),
      schema,
    }),
  );
  return [...inPath, ...inQuery];
}

function operation(route: RouteDefinition) {
  const type = route.responseType ?? "application/json";
  const schema = route.response ? jsonSchema(route.response, "output") : {};
  return {
    summary: route.summary,
    operationId: `${route.method.toLowerCase()}${route.path.replace(/[^a-zA-Z0-9]+/g, "_")}`,
    security: SECURITY[route.auth],
    parameters: parameters(route),
    ...(route.body && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: jsonSchema(route.body, "input") } },
      },
    }),
    responses: {
      "200": { description: "Success", content: { [type]: { schema } } },
      default: { description: "Error", content: { "application/json": { schema: ERROR_SCHEMA } } },
    },
  };
}

/** The OpenAPI document of every registered route. */
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
        apiKey: { type: "http", scheme: "bearer", description: "An API key: service-<uuid>" },
        adminToken: { type: "http", scheme: "bearer", description: "The value of SERVICE_ADMIN_TOKEN" },
      },
    },
    paths,
  };
}
