import {
  answersOf,
  type JsonSchema,
  jsonSchema,
  schemaOf,
  typeInWords,
} from "../../packages/gateway/src/kernel/documents.ts";
import { ERRORS } from "../../packages/gateway/src/kernel/errors.ts";
import type { AnyRoute } from "../../packages/gateway/src/kernel/route.ts";

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");
const AUTH_IN_WORDS: { readonly [Auth in AnyRoute["auth"]]: string } = {
  public: "none",
  api_key: "API key (`Authorization: Bearer service-<uuid>`)",
  jwt: "access token of a signed-in person (`Authorization: Bearer <JWT>`)",
  admin: "access token of an administrator (`Authorization: Bearer <JWT>`)",
  admin_token: "admin token (`Authorization: Bearer <SERVICE_ADMIN_TOKEN>`)",
  jwt_or_admin_token: "access token or admin token (`Authorization: Bearer <either>`)",
};

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

function routeSection(route: AnyRoute): string {
  const parts = [
    `### ${route.method} ${route.path}`,
    `${route.summary}. Auth: ${AUTH_IN_WORDS[route.auth]}.`,
  ];
  if (route.query) parts.push(`**Query**\n\n${fields(jsonSchema(route.query, "input"))}`);
  if (route.body) parts.push(`**Body**\n\n${fields(jsonSchema(schemaOf(route.body), "input"))}`);
  for (const [type, schema] of Object.entries(answersOf(route))) {
    const described = jsonSchema(schema, "output");
    if (type === "text/event-stream") parts.push(`**Each event of a stream**\n\n${fields(described)}`);
    else parts.push(`**Answer**\n\n${type === "application/json" ? fields(described) : `\`${type}\``}`);
  }
  return parts.join("\n\n");
}

/** The HTTP surfaces as Markdown, one section a surface. */
export function httpReference(routes: readonly AnyRoute[]): string {
  const surfaceOf = ({ path }: AnyRoute) => {
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

/** Every setting as Markdown. */
export function settingsReference(settings: { name: string; help: string; shown: string }[]): string {
  const rows = settings.map(({ name, help, shown }) => `| \`${name}\` | ${cell(help)} | ${cell(shown)} |`);
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
