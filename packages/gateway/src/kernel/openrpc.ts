import { z } from "zod";
import { ERRORS } from "./errors.ts";
import type { AnyMethod } from "./method.ts";
import type { Registry } from "./registry.ts";

// The newest version that the published meta-schema accepts.
const OPENRPC_VERSION = "1.3.2";

export type JsonSchema = Record<string, unknown>;

export function jsonSchema(schema: z.ZodType, io: "input" | "output"): JsonSchema {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" }) as JsonSchema;
  return rest;
}

const errorsFor = (method: AnyMethod) => {
  const list: { code: number; message: string }[] = [
    { code: ERRORS.invalid_params.rpc, message: "Invalid params" },
  ];
  if (method.auth !== "public")
    list.push({ code: ERRORS.auth_required.rpc, message: "Authentication required" });
  if (method.auth === "admin")
    list.push({ code: ERRORS.admin_required.rpc, message: "Admin access required" });
  list.push({ code: ERRORS.app_error.rpc, message: "Application error" });
  return list;
};

function describeMethod(method: AnyMethod) {
  const params = jsonSchema(method.params, "input");
  const properties = (params.properties ?? {}) as Record<string, JsonSchema>;
  const required = new Set((params.required as string[] | undefined) ?? []);
  const descriptors = Object.entries(properties).map(([name, schema]) => ({
    name,
    required: required.has(name),
    schema,
  }));
  return {
    name: method.name,
    summary: method.summary,
    tags: [{ name: method.name.split(".")[0] }],
    paramStructure: "by-name",
    // OpenRPC wants required params before optional ones.
    params: descriptors.sort((a, b) => Number(b.required) - Number(a.required)),
    result: { name: "result", schema: jsonSchema(method.result, "output") },
    errors: errorsFor(method),
    "x-auth": method.auth,
    ...(method.role && { "x-role": method.role }),
    ...(method.notifies && { "x-notifications": method.notifies }),
  };
}

/** The OpenRPC document of every registered method and notification. */
export function openRpcDocument(
  registry: Registry,
  { version, serverUrl }: { version: string; serverUrl: string },
): JsonSchema {
  return {
    openrpc: OPENRPC_VERSION,
    info: { title: "Model gateway management plane", version },
    servers: [{ name: "this service", url: `${serverUrl}/api/rpc` }],
    methods: [...registry.methods.values()].map(describeMethod),
    // OpenRPC has no word for what the service sends on its own; these come over /api/rpc/events.
    "x-notifications": [...registry.notifications.values()].map(({ name, summary, params }) => ({
      name,
      summary,
      params: jsonSchema(params, "output"),
    })),
  };
}
