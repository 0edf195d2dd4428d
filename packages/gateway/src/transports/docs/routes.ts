import { bearerOf, type HttpRequest, JSON_TYPE, Reply } from "@model-gateway/wire/http";
import { z } from "zod";
import { openApiDocument, openRpcDocument, rpcReference } from "../../kernel/documents.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual } from "../../kernel/ids.ts";
import type { Registry } from "../../kernel/registry.ts";
import { type AnyRoute, defineRoute, raw } from "../../kernel/route.ts";

export interface DocumentOptions {
  registry: Registry;
  metricsText(): string | Promise<string>;
  metricsToken: string | null;
  isSecure: boolean;
  version: string;
}

/** Stands for the address in the document that is kept. */
const SERVER_URL = "https://address-of-the-service.invalid";

function once<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** The address that the client used; empty for one that named no host. */
function serverUrlOf(request: HttpRequest, isSecure: boolean): string {
  const host = request.header("host");
  // A proxy that ends TLS says so. Anyone can, but the answer goes to nobody else.
  const scheme = isSecure || request.header("x-forwarded-proto") === "https" ? "https" : "http";
  return host ? `${scheme}://${host}` : "";
}

export function documentRoutes({
  registry,
  metricsText,
  metricsToken,
  isSecure,
  version,
}: DocumentOptions): AnyRoute[] {
  const text = (body: string, contentType: string, requestId: string) =>
    new Reply({ status: 200, contentType, requestId }, body);
  // Written once: what they are made from does not change while the service runs.
  const openRpc = once(() => JSON.stringify(openRpcDocument(registry, { version, serverUrl: SERVER_URL })));
  const openApi = once(() => JSON.stringify(openApiDocument(registry, version)));
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
        return text(
          openRpc().replace(SERVER_URL, () => url),
          JSON_TYPE,
          requestId,
        );
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
