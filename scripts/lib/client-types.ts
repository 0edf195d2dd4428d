import { answersOf, schemaOf } from "../../packages/gateway/src/kernel/openapi.ts";
import { jsonSchema } from "../../packages/gateway/src/kernel/openrpc.ts";
import type { Registry } from "../../packages/gateway/src/kernel/registry.ts";
import type { AnyRoute } from "../../packages/gateway/src/kernel/route.ts";
import { typeOf } from "./schema-types.ts";

const HEADER = "// Made by scripts/gen.ts from the definitions; `npm run gen` writes it anew.\n";

/** One member of an interface, with its summary as the comment and its own members as lines. */
function member(name: string, summary: string, types: Record<string, string | null>): string {
  const lines = Object.entries(types).filter(([, type]) => type !== null);
  return [
    `  /** ${summary}. */`,
    `  ${JSON.stringify(name)}: {`,
    ...lines.map(([key, type]) => `    ${key}: ${type};`),
    "  };",
  ].join("\n");
}

/** `Methods`: params and result of every method, for the client. */
export function methodTypes(registry: Registry): string {
  const methods = [...registry.methods.values()];
  const members = methods.map(({ name, summary, auth, params, result }) =>
    member(name, summary, {
      auth: JSON.stringify(auth),
      params: typeOf(jsonSchema(params, "input"), 2),
      result: typeOf(jsonSchema(result, "output"), 2),
    }),
  );
  return [
    HEADER,
    "/** Params and result of every method, by name. */",
    "export interface Methods {",
    ...members,
    "}",
    "",
    "/** Who may call each method; the client chooses the credential by it. */",
    'export const METHOD_AUTH: { readonly [M in keyof Methods]: Methods[M]["auth"] } = {',
    ...methods.map(({ name, auth }) => `  ${JSON.stringify(name)}: ${JSON.stringify(auth)},`),
    "};",
    "",
  ].join("\n");
}

/** `Routes`: body and answer of every route that speaks JSON, for the client. */
export function routeTypes(routes: readonly AnyRoute[]): string {
  const members = routes.flatMap((route) => {
    const { "application/json": answer, "text/event-stream": event } = answersOf(route);
    if (!answer) return [];
    const { method, path, summary, auth, query, body } = route;
    return member(`${method} ${path}`, summary, {
      auth: JSON.stringify(auth),
      query: query ? typeOf(jsonSchema(query, "input"), 2) : null,
      body: body ? typeOf(jsonSchema(schemaOf(body), "input"), 2) : null,
      answer: typeOf(jsonSchema(answer, "output"), 2),
      event: event ? typeOf(jsonSchema(event, "output"), 2) : null,
    });
  });
  return [
    HEADER,
    "/** Body and answer of every route, by its method and path. */",
    "export interface Routes {",
  ]
    .concat(members, "}", "")
    .join("\n");
}

/** `Notifications`: what each carries, for the client. */
export function notificationTypes(registry: Registry): string {
  const members = [...registry.notifications.values()].map(({ name, summary, params }) =>
    [`  /** ${summary}. */`, `  ${JSON.stringify(name)}: ${typeOf(jsonSchema(params, "output"), 1)};`].join(
      "\n",
    ),
  );
  return [HEADER, "/** What each notification carries, by its method. */", "export interface Notifications {"]
    .concat(members, "}", "")
    .join("\n");
}
