import type { z } from "zod";
import { type JsonSchema, jsonSchema } from "./openrpc.ts";
import type { Registry } from "./registry.ts";
import { type AnyRoute, Raw } from "./route.ts";

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

/** The schema of a body, whether it is checked or passed on as bytes. */
export const schemaOf = (shape: z.ZodType | Raw): z.ZodType => (shape instanceof Raw ? shape.schema : shape);

const JSON_MEDIA = "application/json";
const mediaTypeOf = (shape: z.ZodType | Raw): string =>
  (shape instanceof Raw ? shape.more.type : undefined) ?? JSON_MEDIA;

/** What a route answers with, by media type. */
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
        accessToken: { type: "http", scheme: "bearer", description: "The access token of auth.login" },
        apiKey: { type: "http", scheme: "bearer", description: "An API key: service-<uuid>" },
        adminToken: { type: "http", scheme: "bearer", description: "The value of SERVICE_ADMIN_TOKEN" },
      },
    },
    paths,
  };
}
