/** The OpenAPI description, made from the operations themselves. */
import { z } from "zod";
import { errorStatus } from "../errors.ts";
import type { Operation } from "../operations/define.ts";
import { Event } from "../operations/schemas.ts";
import { version } from "../version.ts";

type JsonSchema = Record<string, unknown>;

function schemaOf(type: z.ZodType, io: "input" | "output"): JsonSchema {
  const { $schema: _, ...schema } = z.toJSONSchema(type, { io, unrepresentable: "any" });
  return schema;
}

const errorSchema: JsonSchema = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["code", "message"],
      properties: { code: { type: "string", enum: Object.keys(errorStatus) }, message: { type: "string" } },
    },
  },
};

/** Every operation may name the session that it is for. */
function inputOf({ params }: Operation) {
  const schema = schemaOf(params, "input") as { properties?: object; required?: string[] };
  const session = { type: "string", description: "A session of its own, with its own cookies and tabs" };
  return { ...schema, properties: { session, ...schema.properties } as Record<string, JsonSchema> };
}

function parametersOf(operation: Operation): JsonSchema[] {
  const { properties, required = [] } = inputOf(operation);
  return Object.entries(properties).map(([name, schema]) => ({
    name,
    in: "query",
    required: required.includes(name),
    schema,
  }));
}

function describe(operation: Operation): JsonSchema {
  const result = schemaOf(operation.result, "output") as { properties?: JsonSchema };
  result.properties = { ...result.properties, events: { type: "array", items: schemaOf(Event, "output") } };
  const input =
    operation.method === "POST"
      ? {
          requestBody: {
            required: true,
            content: { "application/json": { schema: inputOf(operation) } },
          },
        }
      : { parameters: parametersOf(operation) };
  return {
    operationId: operation.name,
    summary: operation.summary,
    ...input,
    responses: {
      200: { description: "Done", content: { "application/json": { schema: result } } },
      default: {
        description: "Failed; the message says what to do next",
        content: { "application/json": { schema: errorSchema } },
      },
    },
  };
}

export function openApi(operations: Operation[]): JsonSchema {
  const paths: Record<string, JsonSchema> = {};
  for (const operation of operations) {
    const { path, method } = operation;
    paths[path] = { ...paths[path], [method.toLowerCase()]: describe(operation) };
  }
  return {
    openapi: "3.1.0",
    info: { title: "Browser tool", version, description: "Debug API of the browser tool" },
    components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    security: [{}, { token: [] }],
    paths,
  };
}
