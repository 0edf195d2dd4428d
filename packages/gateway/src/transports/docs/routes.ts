import { bearerOf, type HttpRequest, Reply } from "@model-gateway/wire/http";
import { z } from "zod";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual } from "../../kernel/ids.ts";
import { openApiDocument } from "../../kernel/openapi.ts";
import { openRpcDocument } from "../../kernel/openrpc.ts";
import { rpcReference } from "../../kernel/reference.ts";
import type { Registry } from "../../kernel/registry.ts";
import { type AnyRoute, defineRoute, raw } from "../../kernel/route.ts";

export interface DocumentOptions {
  registry: Registry;
  metricsText(): string | Promise<string>;
  /** What `GET /metrics` asks for; null: nothing. */
  metricsToken: string | null;
  /** Whether the service itself speaks TLS. */
  isSecure: boolean;
  version: string;
}

/** The address that the client used; empty for one that named no host. */
function serverUrlOf(request: HttpRequest, isSecure: boolean): string {
  const host = request.header("host");
  // A proxy that ends TLS says so. Anyone can, but the answer goes to nobody else.
  const scheme = isSecure || request.header("x-forwarded-proto") === "https" ? "https" : "http";
  return host ? `${scheme}://${host}` : "";
}

/** The documents that are derived from the definitions, and the metrics. */
export function documentRoutes({
  registry,
  metricsText,
  metricsToken,
  isSecure,
  version,
}: DocumentOptions): AnyRoute[] {
  const text = (body: string, contentType: string, requestId: string) =>
    new Reply({ status: 200, contentType, requestId }, body);
  return [
    defineRoute({
      method: "GET",
      path: "/api/openrpc.json",
      summary: "OpenRPC document of the management plane",
      auth: "public",
      response: z.looseObject({}),
      handler: ({ request }) =>
        openRpcDocument(registry, { version, serverUrl: serverUrlOf(request, isSecure) }),
    }),
    defineRoute({
      method: "GET",
      path: "/api/openapi.json",
      summary: "OpenAPI document of the HTTP surfaces",
      auth: "public",
      response: z.looseObject({}),
      handler: () => openApiDocument(registry, version),
    }),
    defineRoute({
      method: "GET",
      path: "/api/reference.md",
      summary: "The management plane's reference as Markdown",
      auth: "public",
      response: raw(z.string(), { type: "text/markdown" }),
      handler: ({ requestId }) => text(rpcReference(registry), "text/markdown; charset=utf-8", requestId),
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
