import { bearerOf, type HttpRequest, JSON_TYPE, Reply } from "@model-gateway/wire/http";
import { z } from "zod";
import { openApiDocument, openRpcDocument, rpcReference } from "../../kernel/documents.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual } from "../../kernel/ids.ts";
import type { Registry } from "../../kernel/registry.ts";
import { type AnyRoute, defineRoute, raw } from "../../kernel/route.ts";
import { VERSION } from "../../kernel/version.ts";

interface DocumentOptions {
  registry: Registry;
  metricsText(): string | Promise<string>;
  metricsToken: string | null;
  isSecure: boolean;
}

/** Replaced by the service's address in each answer. */
const SERVER_URL = "https://address-of-the-service.invalid";

function once(make: () => string): () => string {
  let made: string | null = null;
  return () => {
    made ??= make();
    return made;
  };
}

function serverUrlOf(request: HttpRequest, isSecure: boolean): string {
  const host = request.header("host");
  // Set by proxies. Clients can set it, too, but the answer goes to nobody else.
  const scheme = isSecure || request.header("x-forwarded-proto") === "https" ? "https" : "http";
  return host ? `${scheme}://${host}` : "";
}

export function documentRoutes({
  registry,
  metricsText,
  metricsToken,
  isSecure,
}: DocumentOptions): AnyRoute[] {
  const text = (body: string, contentType: string, requestId: string) =>
    new Reply({ status: 200, contentType, requestId }, body);
  // Built once, because the registry does not change while the service runs.
  const openRpc = once(() =>
    JSON.stringify(openRpcDocument(registry, { version: VERSION, serverUrl: SERVER_URL })),
  );
  const openApi = once(() => JSON.stringify(openApiDocument(registry, VERSION)));
  const reference = once(() => rpcReference(registry));
  return [
    defineRoute({
      method: "GET",
      path: "/api/openrpc.json",
      summary: "OpenRPC document of the management plane",
      auth: "public",
      response: raw(z.looseObject({}), { type: JSON_TYPE }),
      handler: ({ request, requestId }) => {
        const url = JSON.stringify(serverUrlOf(request, isSecure)).slice(1, -1);
        const document = openRpc().replace(SERVER_URL, () => url);
        return text(document, JSON_TYPE, requestId);
      },
    }),
    defineRoute({
      method: "GET",
      path: "/api/openapi.json",
      summary: "OpenAPI document of the HTTP surfaces",
      auth: "public",
      response: raw(z.looseObject({}), { type: JSON_TYPE }),
      handler: ({ requestId }) => text(openApi(), JSON_TYPE, requestId),
    }),
    defineRoute({
      method: "GET",
      path: "/api/reference.md",
      summary: "The management plane's reference as Markdown",
      auth: "public",
      response: raw(z.string(), { type: "text/markdown" }),
      handler: ({ requestId }) => text(reference(), "text/markdown; charset=utf-8", requestId),
    }),
    defineRoute({
      method: "GET",
      path: "/metrics",
      summary: "Prometheus metrics",
      auth: "public",
      response: raw(z.string(), { type: "text/plain" }),
      handler: async ({ request, requestId }) => {
        if (metricsToken !== null && !constantTimeEqual(bearerOf(request) ?? "", metricsToken))
          fail("auth_required", "Send SERVICE_METRICS_TOKEN as `Authorization: Bearer`");
        return text(await metricsText(), "text/plain; version=0.0.4; charset=utf-8", requestId);
      },
    }),
  ];
}
