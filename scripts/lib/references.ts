import { ERRORS } from "../../packages/gateway/src/kernel/errors.ts";
import { type JsonSchema, jsonSchema } from "../../packages/gateway/src/kernel/openrpc.ts";
import { typeInWords } from "../../packages/gateway/src/kernel/reference.ts";
import type { Registry } from "../../packages/gateway/src/kernel/registry.ts";
import type { RouteDefinition } from "../../packages/gateway/src/kernel/route.ts";
import { typeOf } from "./schema-types.ts";

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");
const AUTH_IN_WORDS = {
  public: "none",
  api_key: "API key (`Authorization: Bearer service-<uuid>`)",
  admin_token: "admin token (`Authorization: Bearer <SERVICE_ADMIN_TOKEN>`)",
} as const;

function fields(schema: JsonSchema): string {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  if (properties.length === 0) return `${typeInWords(schema)}.`;
  const required = new Set((schema.required as string[] | undefined) ?? []);
  const rows = properties.map(([name, field]) => {
    const type = `${typeInWords(field)}${required.has(name) ? "" : ", optional"}`;
    return `| \`${name}\` | ${cell(type)} | ${cell(String(field.description ?? ""))} |`;
  });
  return ["| Field | Type | Notes |", "|---|---|---|", ...rows].join("\n");
}

function routeSection(route: RouteDefinition): string {
  const parts = [
    `### ${route.method} ${route.path}`,
    `${route.summary}. Auth: ${AUTH_IN_WORDS[route.auth]}.`,
  ];
  if (route.query) parts.push(`**Query**\n\n${fields(jsonSchema(route.query, "input"))}`);
  if (route.body) parts.push(`**Body**\n\n${fields(jsonSchema(route.body, "input"))}`);
  if (route.responseType) parts.push(`**Answer**\n\n\`${route.responseType}\``);
  else if (route.response) parts.push(`**Answer**\n\n${fields(jsonSchema(route.response, "output"))}`);
  return parts.join("\n\n");
}

/** The HTTP surfaces as Markdown, one section a surface. */
export function httpReference(routes: readonly RouteDefinition[]): string {
  const surfaceOf = ({ path }: RouteDefinition) => {
    if (path.startsWith("/v1/")) return "Inference: /v1";
    if (path.startsWith("/api/admin/")) return "Administration: /api/admin";
    return "Documents and probes";
  };
  const parts = [...Map.groupBy(routes, surfaceOf)]
    .sort(([a], [b]) => Number(a.startsWith("Doc")) - Number(b.startsWith("Doc")))
    .map(([surface, list]) => [`## ${surface}`, ...list.map(routeSection)].join("\n\n"));
  return `# HTTP surfaces\n\nMade from the route definitions; \`GET /api/openapi.json\` has the same for machines. Errors have the body \`{"error": {"message", "type", "code"}}\`; [errors.md](errors.md) lists them.\n\n${parts.join("\n\n")}\n`;
}

/** Every error as Markdown. */
export function errorReference(): string {
  const rows = Object.values(ERRORS).map(
    ({ rpc, status, type, code }) => `| \`${code}\` | \`${type}\` | ${status} | ${rpc} |`,
  );
  return [
    "# Errors",
    "",
    "Made from the one table of errors. REST answers carry `type` and `code` in the body; JSON-RPC answers carry the number in `error.code`.",
    "",
    "| Code | Type | HTTP status | JSON-RPC code |",
    "|---|---|---|---|",
    ...new Set(rows),
    "",
  ].join("\n");
}

/** Every setting as Markdown, from the text of `--help`. */
export function settingsReference(described: string): string {
  const rows = described.split("\n").map((line) => {
    const [, name, help, shown] = /^\s*(\S+)\s+(.*) \(default: (.*)\)$/.exec(line) ?? [];
    return `| \`${name}\` | ${cell(help ?? "")} | ${cell(shown ?? "")} |`;
  });
  return [
    "# Settings",
    "",
    "Made from the configuration schema. Settings are environment variables; an unknown `SERVICE_*` name or a bad value stops the start with a message that names it.",
    "",
    "| Variable | Meaning | Default |",
    "|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}

/** `Methods`: params and result of every method, for the client. */
export function methodTypes(registry: Registry): string {
  const entries = [...registry.methods.values()].map((method) => {
    const params = typeOf(jsonSchema(method.params, "input"), 2);
    const result = typeOf(jsonSchema(method.result, "output"), 2);
    return [
      `  /** ${method.summary}. */`,
      `  ${JSON.stringify(method.name)}: {`,
      `    auth: ${JSON.stringify(method.auth)};`,
      `    params: ${params};`,
      `    result: ${result};`,
      "  };",
    ].join("\n");
  });
  return [
    "// Made by scripts/gen.ts from the method definitions; `npm run gen` writes it anew.",
    "",
    "/** Params and result of every method, by name. */",
    "export interface Methods {",
    entries.join("\n"),
    "}",
    "",
    "/** Who may call each method; the client chooses the credential by it. */",
    'export const METHOD_AUTH: { readonly [M in keyof Methods]: Methods[M]["auth"] } = {',
    ...[...registry.methods.values()].map(
      ({ name, auth }) => `  ${JSON.stringify(name)}: ${JSON.stringify(auth)},`,
    ),
    "};",
    "",
  ].join("\n");
}
